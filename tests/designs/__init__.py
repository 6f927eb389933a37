"""Designs: sections, their rendering to HTML and text, and safety against hostile documents."""
