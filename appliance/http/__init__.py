"""The HTTP server, and the strict parsing of its requests."""
