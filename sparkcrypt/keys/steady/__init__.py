"""What stands between this process and a key service over a network: deadline, retries, breakers, several addresses."""
