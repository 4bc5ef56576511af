"""The JVM behind a classic session: the way into it, the jar, and what its exceptions say."""
