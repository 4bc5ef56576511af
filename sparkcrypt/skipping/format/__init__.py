"""The format of stores: reading their files and making their rows, without any decision about trust."""
