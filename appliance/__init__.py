"""Campanero: the domain, the API, and the process that runs them."""

VERSION = "0.1.0"
