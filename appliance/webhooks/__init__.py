"""Deliver events to webhooks, signed, until they are accepted or given up.

Events become deliveries after a cursor, whose outcomes are recorded (`queue`); due deliveries are posted (`worker`).
All state is in rows: the next process repeats what a crashed one was doing under the same `webhook-id`, so that nothing
is lost and receivers can detect a repeat.
"""
