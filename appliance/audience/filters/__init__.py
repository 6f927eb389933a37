"""Filters over contacts: a registry of fields and predicates, a parser, and a compiler to SQL.

`parse.parse_filters` turns JSON into nodes and `compiler.compile_filters` makes them SQL over the contact alias `c`.
The same SQL with the id of one contact tells whether that contact matches, so that segments, splits of flows and
explanations always agree.
"""
