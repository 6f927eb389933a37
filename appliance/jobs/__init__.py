"""Background jobs, the queue that runs them, and their threads."""
