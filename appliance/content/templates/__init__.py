"""Templates of messages: content, revisions and editing."""
