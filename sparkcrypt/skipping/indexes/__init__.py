"""Creates, refreshes and verifies stores for data files: bounds, lists of values, filters and partitions."""
