"""Files of people read, checked, applied, explained and taken back."""
