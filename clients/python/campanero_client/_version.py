"""The version of the client.

Generated from the OpenAPI document by `python -m clients.generator`; do not edit.
"""

VERSION = "0.1.0"
