"""Filters over contacts: one registry of fields and predicates, read, put in words and made into SQL.

`read.filters` turns what was sent into nodes, `compile.condition` makes them SQL over the contact alias `c`, and
`words.sentence` says them. The same SQL with one contact's id answers whether that person is in, so that segments,
branches and explanations can never disagree.
"""
