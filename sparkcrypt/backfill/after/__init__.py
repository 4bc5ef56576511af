"""Commands after a run: expire its old files, roll it back, resolve problems, find orphans.

Orphans are folders to which no table refers any more (``orphans``; ``journalled_folders`` finds them in journals).  The
handling of old files before their expiry is in ``old_files``.
"""
