"""SMS: segments, phone numbers, keywords, error codes, and providers."""
