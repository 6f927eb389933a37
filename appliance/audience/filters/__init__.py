"""Filters over contacts: a registry of fields and predicates, and a compiler to SQL.

`compiler.parse_filters` turns JSON into nodes, and `compile_filters` turns the nodes into SQL about the contact
with the alias `c`. Segments, splits of flows and explanations use the same SQL (for a single contact with a condition
on its id), so that their results always agree.
"""
