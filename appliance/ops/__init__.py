"""Operation of an installation: the command line, backups, doctor, status and metrics."""
