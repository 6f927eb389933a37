"""Steps of flows: the kind that follows from the keys of one, and the kinds that only `type` names."""

# Keys that belong to one kind alone -> that kind
CLAIMS = {
    "split": {"filters", "yes", "no"},
    "wait": {"duration"},
    "emit_event": {"event_name", "event_data", "forward_event_data"},
    "email": {"subject", "design", "preheader", "from_name", "from_email", "reply_to"},
    "sms": {"body"},
}
BY_TYPE_ONLY = {
    "list_add": {"contact_list_id"},
    "list_remove": {"contact_list_id"},
    "tag_add": {"tag"},
    "tag_remove": {"tag"},
    "contact_update": {"data_merge"},
    "unsubscribe": {"channel"},
    "exit": set(),
    "split_value": {"field"},
    "random_split": {"metric", "event_name", "by_amount", "uneven", "decided_by"},
    "notify": {"via", "user_id", "slack_url", "note"},
    "http_request": {
        "method",
        "url",
        "headers",
        "secret_headers",
        "payload",
        "signed",
        "signing_secret",
        "save_to_contact",
        "save_to_run",
        "timeout",
    },
    "go_to": {"step_id", "max_jumps"},
    "wait_until": {
        "until",
        "at",
        "weekdays",
        "time_zone",
        "path",
        "offset_days",
        "event_name",
        "filters",
        "timeout",
    },
}
# Keys that stand beside those of a kind
BESIDE = {"email": {"body", "transactional", "utm"}, "sms": {"transactional", "utm"}}
# Always in an answer, neutral where they mean nothing
RESPONSE_FORM = (
    "subject", "body", "preheader", "duration", "filters", "yes", "no", "event_name", "forward_event_data",
)  # fmt: skip
LIMITS = {"steps": 200, "depth": 10, "wait_seconds": 31_622_400}
FREQUENCIES = ("once", "every_time", {"min_gap_seconds": 86_400})
TRIGGER_DATA = (
    "frequency", "where", "keywords", "tag", "path", "yearly", "offset_days", "at", "max_per_hour", "holdout",
    "holdout_event", "respect_control_group",
)  # fmt: skip

# What a step is taken for
GUESSES = (
    ({"filters": [{"name": "email", "predicate": "present"}]}, "split"), ({"duration": 60}, "wait"),
    ({"duration": 0}, "wait"), ({"event_name": "checkout"}, "emit_event"), ({"subject": "x"}, "email"),
    ({"subject": "x", "body": "x"}, "email"), ({"preheader": "x"}, "email"), ({"body": "x"}, "sms"),
    ({"body": "x", "transactional": True}, "sms"), ({"body": "x", "subject": "", "filters": []}, "sms"),
    ({"type": "exit"}, "exit"),
)  # fmt: skip
