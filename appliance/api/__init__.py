"""The JSON API under /v1/my."""
