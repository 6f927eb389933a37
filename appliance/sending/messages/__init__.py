"""Messages: their rendering, queue, retries and display."""
