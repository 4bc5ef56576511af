"""The key service over Hadoop KMS: how its REST API is spoken to, who is let in, and what it answers."""
