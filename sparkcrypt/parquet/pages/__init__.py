"""What every way of reading a column chunk holds to: regions, page facts, and what is taken leniently."""
