"""Key services without a network: master keys as files of one folder, with backups of these, and throw-away keys."""
