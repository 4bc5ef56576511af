"""The Python half of the bridge: the process that a JVM starts to reach key services and the policy."""
