"""One message to many people, once."""
