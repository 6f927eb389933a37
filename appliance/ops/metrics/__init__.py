"""What the service tells a monitoring system: numbers of this process, of the machine and of the tables."""
