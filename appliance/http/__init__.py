"""The HTTP server, and the strict reading of its requests."""
