"""The executable and the packages made from it, tested against other systems."""
