"""Who may act, and with what."""
