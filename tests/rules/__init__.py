"""What the sources themselves must hold to: layers, style, schema, settings, the published document, texts."""
