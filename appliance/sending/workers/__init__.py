"""Workers that send email and SMS, with their ready queue, rate limits and circuit breaker."""
