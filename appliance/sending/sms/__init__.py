"""Short messages: their alphabet and parts, numbers, words that mean something, and the providers that carry them."""
