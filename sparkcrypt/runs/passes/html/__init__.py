"""The report of a pass as one self-contained HTML page."""
