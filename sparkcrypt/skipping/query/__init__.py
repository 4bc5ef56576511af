"""What a store says of a predicate: which files a query need not open."""
