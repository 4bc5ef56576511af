"""Tables of the session catalog: what they are, their tags, their UUIDs, and what a policy makes of them."""
