"""How files differ from their plan: footers read or remembered, columns matched, units scanned."""
