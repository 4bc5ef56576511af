"""The rewrite of a file under another encryption: read chunk by chunk, no page decoded, written whole."""
