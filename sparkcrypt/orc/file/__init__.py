"""A file opened: its end, types, stripes, streams and statistics, codecs and ciphers."""
