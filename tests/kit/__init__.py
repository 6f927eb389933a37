"""Test support: the real process, an HTTP client, scriptable SMTP, DNS and SMS servers, a clock and a browser."""
