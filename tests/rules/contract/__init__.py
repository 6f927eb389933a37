"""The documented interface as data: endpoints, fields, errors, events and settings, without code of the service.

Each row begins with its origin: `S` specified, `D` decided where the specification is silent, `O` an addition to
both (always with the reason), `L` planned for later. Tests compare every table with the service in both directions.
"""
