"""Files by Hadoop's FileSystem: listed, read, moved, with their access rights and storage policies."""
