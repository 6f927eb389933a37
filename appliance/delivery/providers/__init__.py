"""Ways out, one file each."""
