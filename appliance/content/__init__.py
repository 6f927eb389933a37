"""The content of messages: designs, templates, pictures and the brand."""
