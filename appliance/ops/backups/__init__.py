"""Backups of an installation, and the way back: taken while it serves, restored held (P11)."""
