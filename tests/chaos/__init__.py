"""Chaos: rounds of writers against passes, expires, rollbacks, kills and faults, judged by a model of the rows."""
