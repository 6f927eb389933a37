"""Sends SMS that are due, for as long as there are some."""
