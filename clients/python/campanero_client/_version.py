"""The version of the client: that of the service whose API it was generated from."""

VERSION = "0.1.0"
