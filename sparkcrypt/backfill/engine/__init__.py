"""The engines that rewrite the files of a unit into staged ones, by pages or by rows, and prove them equal."""
