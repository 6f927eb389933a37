"""What recipients do with a message."""
