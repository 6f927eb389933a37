"""Every setting: its schema, where its value comes from, and the example that is shipped."""
