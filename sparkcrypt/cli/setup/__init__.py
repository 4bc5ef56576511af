"""Commands about a set-up: is it ready, its launch configuration, its master keys."""
