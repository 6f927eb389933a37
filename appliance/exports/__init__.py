"""People, events and messages as files, streamed."""
