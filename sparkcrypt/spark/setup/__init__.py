"""Sessions under a policy: launched, configured, pinned, examined, and read with."""
