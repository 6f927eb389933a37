"""The JSON door: the API under /v1/my."""
