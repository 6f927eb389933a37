"""How messages leave: the ledger, rendering, limits, transports, sending domains."""
