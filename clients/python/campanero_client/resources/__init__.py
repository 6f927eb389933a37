"""The operations of each resource.

Generated from the OpenAPI document by `python -m clients.generator`; do not edit.
"""
