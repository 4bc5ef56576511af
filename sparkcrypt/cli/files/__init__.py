"""Commands that inspect, rewrite and index files."""
