"""Segments: groups of people that follow from filters, counted, explained and mirrored by lists."""
