"""Segments: contacts that match filters, with counts, explanations and suggestions."""
