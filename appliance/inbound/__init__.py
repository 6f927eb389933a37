"""Receive bounces, complaints, provider webhooks and incoming SMS, and capture outgoing mail for the built-in inbox."""
