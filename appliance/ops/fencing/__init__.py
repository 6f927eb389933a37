"""The lease, an object in a store: only the machine that holds and renews it may send."""
