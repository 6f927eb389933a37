"""The HTTP server: what it listens on, how requests are read, what each answer carries."""
