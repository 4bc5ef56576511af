"""The key service over Hadoop KMS: its REST API, its credentials and its answers."""
