"""Requests generated from the OpenAPI document, sent to the running service."""
