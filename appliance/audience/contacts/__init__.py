"""Contacts: reading, searching, writing, merging and erasing them."""
