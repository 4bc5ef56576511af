"""One unit from listing to audit: stage, verify, swap, move old files, write down; and what a crash left of it."""
