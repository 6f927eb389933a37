"""Sending domains: their DKIM keys, their DNS records, and their verification."""
