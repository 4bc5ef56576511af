"""A file under another encryption, its streams moved as they are."""
