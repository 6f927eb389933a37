"""A second machine that is ready to take over: following the replica of the first one, and its promotion."""
