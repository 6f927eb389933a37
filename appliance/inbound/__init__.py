"""Inbound mail and SMS: bounces, complaints, provider webhooks, replies, and the capture server."""
