"""Sign-up forms: submissions by anonymous clients, and their confirmation by the owner of the address."""
