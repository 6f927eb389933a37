"""Tells others of events as they happen."""
