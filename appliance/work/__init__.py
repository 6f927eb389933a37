"""What runs beside requests."""
