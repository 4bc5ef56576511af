"""Key services of clouds: AWS KMS, Google Cloud KMS and Azure Key Vault."""
