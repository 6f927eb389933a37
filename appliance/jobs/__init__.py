"""Work in the background: what runs when, and the queue that runs it."""
