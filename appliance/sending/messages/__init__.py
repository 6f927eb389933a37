"""One message: built, queued, sent, shown."""
