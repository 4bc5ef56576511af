"""Decodes rows of ORC files: the streams of chosen row groups into Arrow's arrays; needs pyarrow and numpy."""
