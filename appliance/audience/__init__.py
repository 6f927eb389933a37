"""Who receives messages: contacts, lists, segments, filters, consent and suppressions."""
