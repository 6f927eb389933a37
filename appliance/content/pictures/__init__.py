"""Pictures made anew from what somebody uploaded: bytes in, bytes out, knowing no rows."""
