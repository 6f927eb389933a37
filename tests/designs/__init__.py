"""Designs: sections, their look, their text, and what no document can do to them."""
