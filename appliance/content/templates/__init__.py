"""Templates of messages: content, validation, editing, revisions and starters."""
