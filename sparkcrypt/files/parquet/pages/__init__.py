"""The rules shared by every way of reading a column chunk: regions, page headers, and accepted irregularities."""
