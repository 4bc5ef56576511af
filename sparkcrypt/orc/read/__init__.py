"""Rows of ORC files: the streams of chosen row groups decoded into Arrow's arrays; needs pyarrow and numpy."""
