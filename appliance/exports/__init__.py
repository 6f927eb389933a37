"""Export contacts, events, messages and other records as streamed files."""
