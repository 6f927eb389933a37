"""The executable and the packages made of it, as they meet other systems."""
