"""Messages: composing, queueing, retrying and displaying them."""
