"""Client of the Campanero API: email and SMS marketing, self-hosted."""
