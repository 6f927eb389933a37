"""The domain, asked directly: no process, no HTTP, a database of its own for each test."""
