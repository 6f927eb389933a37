"""The base that every other package builds on: errors, clock, addresses, crypto, validation, signals."""
