"""People, their addresses and what they agreed to."""
