"""The settings: their schema, how their values are loaded, and the example file."""
