"""Backups: creating them (`create`), their file format (`archive`) and restoring them (`restore`)."""
