"""Sign-in with OpenID Connect: `providers` and their `metadata`, the `flow`, ID `tokens`, and linked `identities`."""
