"""Evaluates a query's predicate against a store, to find the files that the query need not open."""
