"""Send messages: the ledger, rendering, limits, transports, sending domains."""
