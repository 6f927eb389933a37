"""Generated attacks: what nobody thought of, beside the cases of the other tests (docs/threats.md#attacks)."""
