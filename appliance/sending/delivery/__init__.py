"""Delivery of finished messages: SMTP, MX routes, MIME, DKIM, DNS and safe HTTP requests."""
