"""The one database file: opened, migrated, written by one thread."""
