"""Running the service: commands, health, status, backups, metrics."""
