"""Modules that every other package uses: errors, clock, addresses, cryptography, validation, signals."""
