"""`sparkcrypt backfill`: runs over tables, and what is done after them."""
