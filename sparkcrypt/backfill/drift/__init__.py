"""The drift of files from their plan: footers read or cached, columns matched, units scanned."""
