"""The key service whose master keys are files of one folder, and backups of these."""
