"""What a message looks like: values in, values out."""
