"""Access to files through Hadoop's FileSystem: listing, reading, moving, access rights and storage policies."""
