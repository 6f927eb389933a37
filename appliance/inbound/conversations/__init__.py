"""What people write back over SMS, what it asks of us, and what we answer."""
