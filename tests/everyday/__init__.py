"""Nights of an estate of tables: what people do, passes, expires and rotations that are killed, judged by a model."""
