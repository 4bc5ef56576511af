"""Commands about files that are named: inspecting, rewriting and indexing them."""
