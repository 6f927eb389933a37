"""The clients in `clients/`: generated from the document, typed, and at work against the service."""
