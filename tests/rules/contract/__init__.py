"""What is promised to those who build on this, as data: quoted from the interface's two pages, free of our code.

Each row begins with its origin: `S` specified, `D` decided where the specification is silent, `O` our own beyond
both (always with the reason), `L` promised and not there yet. Tests hold every table in both directions.
"""
