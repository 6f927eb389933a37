"""The door for recipients: signed links, no login."""
