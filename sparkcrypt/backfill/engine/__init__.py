"""What rewrites the files of a unit into staged ones, by pages or by rows, and proves them equal."""
