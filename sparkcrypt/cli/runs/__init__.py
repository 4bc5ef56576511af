"""Commands that run over tables: `sparkcrypt backfill`, `rotate` and `shred`, and those for past runs."""
