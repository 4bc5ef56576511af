"""Commands for a set-up: `doctor`, `conf` and `keys`."""
