"""What comes back after a message was accepted: deliveries, bounces, complaints."""
