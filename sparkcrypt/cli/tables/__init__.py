"""Commands about one table or folder: its tags, its plan, encrypting, verifying, its audit."""
