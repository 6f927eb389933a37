"""Track what recipients do: opens, clicks, unsubscribes, preferences and erasure requests."""
