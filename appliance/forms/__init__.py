"""Sign-up forms: what strangers may send us, and the question that follows."""
