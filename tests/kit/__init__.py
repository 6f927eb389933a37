"""What tests need around the appliance: the real process, a client, a scriptable SMTP server, a clock, a browser."""
