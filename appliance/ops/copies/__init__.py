"""Copies: encrypted, signed backups in a store beyond this machine (docs/decisions.md#31)."""
