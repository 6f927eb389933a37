"""Proposals of agents: what an agent may not do itself, it proposes, and a user approves or returns it."""
