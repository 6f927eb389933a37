"""Messages: composing, queueing, retrying and showing them."""
