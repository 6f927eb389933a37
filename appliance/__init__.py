"""Campanero's domain, its doors and the process that holds them together."""

VERSION = "0.1.0"
