"""Guards of key services over a network: deadlines, retries, circuit breakers, and several addresses."""
