"""A state directory of format version 1, as release 0.1.0 wrote it."""
