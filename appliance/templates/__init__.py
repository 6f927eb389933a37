"""What a message says."""
