"""Tables of the session catalog: their metadata, tags, UUIDs, plans and rules."""
