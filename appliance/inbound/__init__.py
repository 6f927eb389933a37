"""The door for returned mail: our own SMTP listener, which relays nothing."""
