"""Tracking of opens and clicks, and the unsubscribes, preferences and erasure requests of recipients."""
