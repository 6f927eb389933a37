"""Delivery of finished messages: SMTP, MX routes, MIME, DKIM, DNS, OAuth tokens and safe HTTP requests."""
