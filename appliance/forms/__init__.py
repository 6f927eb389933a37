"""Sign-up forms, their submissions by anonymous clients, and the confirmation of addresses by their owners."""
