"""Domains that mail may come from: their keys, their records, and what DNS says of them."""
