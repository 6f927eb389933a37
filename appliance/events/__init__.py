"""Events: what happened to contacts, recorded by the service or submitted by API clients."""
