"""Backups of an installation: created while it runs, restored with sending stopped (docs/promises.md, P11)."""
