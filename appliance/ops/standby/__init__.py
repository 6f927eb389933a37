"""A second machine that is ready: the state of Litestream, following a replica, and the promotion of the machine."""
