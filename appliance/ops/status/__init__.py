"""What the service is doing, for a terminal or a script: looked up in the data directory, whether it runs or not."""
