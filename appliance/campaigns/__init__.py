"""Campaigns: one message, sent once to an audience."""
