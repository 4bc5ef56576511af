"""Key services without a network: master keys in files of a folder, backups of them, and throw-away keys."""
