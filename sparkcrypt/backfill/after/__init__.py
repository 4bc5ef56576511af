"""What people do after a run: expire its old files, roll it back, resolve problems, find orphans.

Orphans are folders that no table leads to any more (``orphans``, by what ``leftovers`` says of journals); what becomes
of old files before that is in ``old_files``.
"""
