"""Master keys deleted so that data past their retention can never be read again: planned, done, proven, remembered."""
