"""The report of a pass as one page that stands alone."""
