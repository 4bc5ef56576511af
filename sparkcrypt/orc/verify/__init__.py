"""The proof of a file, by other code than the rewrite's."""
