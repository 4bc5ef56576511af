"""The life of master keys in use: rotation, retirement of versions, and shredding of what is past its retention."""
