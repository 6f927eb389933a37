"""Accounts, users, API keys, sessions, roles, approvals and the audit log."""
