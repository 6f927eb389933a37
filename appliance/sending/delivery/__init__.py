"""How a finished message leaves."""
