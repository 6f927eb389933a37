"""The certificates of the listeners: files of the operator, or certificates from an ACME CA (RFC 8555)."""
