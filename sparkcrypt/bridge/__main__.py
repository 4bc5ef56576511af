"""Entry point of the helper, ``python -m sparkcrypt.bridge``; a JVM runs the jar, so that no folder shadows it."""

from __future__ import annotations

from sparkcrypt.bridge.server import main

if __name__ == "__main__":
    main()
