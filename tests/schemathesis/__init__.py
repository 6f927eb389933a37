"""Requests made up from the published document, held against the running service."""
