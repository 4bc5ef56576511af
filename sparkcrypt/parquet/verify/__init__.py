"""The proof of a file: every module authenticated, the structure checked, the content digested."""
