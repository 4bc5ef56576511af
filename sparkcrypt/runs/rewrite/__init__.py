"""The rewriting of a unit: listed, staged by an engine, proven equal, swapped, recorded; and recovery after a crash."""
