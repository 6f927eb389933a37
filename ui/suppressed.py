"""Why an address gets nothing, as people read it."""

# Why an address gets nothing, the words of a filter and of a row; and what that means.
SUPPRESSIONS = {
    "hard_bounce": "Does not exist",
    "soft_bounce": "Keeps failing",
    "complaint": "Called it spam",
    "manual": "Blocked by hand",
    "erased": "Erased",
    "stop_keyword": "Answered STOP",
}
SUPPRESSED = {
    "hard_bounce": "Its server said that there is no such recipient.",
    "soft_bounce": "Five messages within 30 days could not be delivered.",
    "complaint": "They reported a message as unwanted, and are unsubscribed.",
    "manual": "Somebody of your team decided so.",
    "erased": "They asked to be forgotten; only a mark that cannot be read is left.",
    "stop_keyword": "They get no more SMS.",
}
