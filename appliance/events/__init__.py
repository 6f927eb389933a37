"""Events: what happened to contacts, recorded by the service or sent by clients."""
