"""What knows nothing of the rest: errors, clock, addresses, tokens, files, checked values."""
