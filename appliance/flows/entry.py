"""Who enters a flow: events behind the cursor are held against the triggers of active flows."""


def take_in() -> bool:
    """Read a bite of events behind the cursor, and start, ignore or end the runs they mean; says if there were any."""
    return False


def is_due() -> bool:
    """Say whether there are events that nobody has looked at."""
    return False
