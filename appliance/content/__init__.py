"""What messages are made of: designs, templates, pictures, the brand."""
