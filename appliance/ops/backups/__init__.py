"""Backups of an installation: created while it runs, restored with sending stopped (P11)."""
