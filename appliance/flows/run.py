"""Takes runs that are due from step to step, each effect in the transaction that moves the run."""


def advance() -> bool:
    """Take a bite of due runs as far as they go now; says if there were any."""
    return False


def is_due() -> bool:
    """Say whether a run of an active flow is due."""
    return False
