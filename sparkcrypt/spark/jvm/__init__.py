"""The JVM behind a classic session: access to its classes, the jar, and its exceptions."""
