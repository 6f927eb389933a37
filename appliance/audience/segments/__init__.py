"""Segments: sets of contacts that match filters, with counts, explanations and suggestions."""
