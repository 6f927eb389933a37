"""Re-encoding of uploaded pictures in a child process, without access to the database."""
