"""Contacts: read, search, write, merge and erase."""
