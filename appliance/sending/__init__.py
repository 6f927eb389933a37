"""Sending of messages: the ledger, rendering, limits, transports and sending domains."""
