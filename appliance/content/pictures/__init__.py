"""Re-encoding of uploaded pictures in a child process; knows no database rows."""
