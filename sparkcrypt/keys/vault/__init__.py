"""The key service over the transit engine of HashiCorp Vault or OpenBao."""
