"""Sessions under a policy: launching, configuring and checking them, and reading tables with them."""
