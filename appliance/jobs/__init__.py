"""Background jobs, and the queue that runs them."""
