"""The table or folder that a run works on: its units, how their files differ from the plan, and what is in use."""
