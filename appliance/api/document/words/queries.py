"""Words for what may stand in the query of a request."""

_SEARCH = "words to look for in names"
NAMES = {
    "search": _SEARCH,
    "status": "only those with this status",
    "channel": "only those of this channel",
    "test": "only tests, or only what is none",
    "contact_id": "only those of this contact",
    "campaign_id": "only those of this campaign",
    "flow_id": "only those of this flow",
    "segment_id": "only those in this segment",
    "list_id": "only those in this list",
    "created_after": "only those made then or later: a moment, or a date, which begins at 00:00 in the account's zone",
    "created_before": "only those made before: a moment, or a date, which begins at 00:00 in the account's zone",
    "updated_after": "only those changed then or later: a moment or a date",
    "updated_before": "only those changed before: a moment or a date",
    "event": "only those of this name",
    "source": "only those with exactly this source",
    "since": "only those since then: a moment or a date",
    "bom": "begins a CSV with a byte order mark, by which spreadsheets know that it is UTF-8",
    "dry_run": "only reports what would be done",
}

WORDS: dict[str, dict[str, str]] = {
    "ContactQuery": {
        "search": "words to look for: prefixes of names, of e-mail addresses and their parts; digits of phone numbers",
        "q": "the same as `search`",
        "query": "the same as `search`",
        "tag": "only those with this tag",
        "subscribed_email": "only those who are subscribed by e-mail, or who are not",
        "subscribed_phone": "only those who are subscribed by phone, or who are not",
    },
    "SearchQuery": {"q": "words to look for, as in `search` of the list; needed"},
    "DeleteQuery": {"erase": "removes every trace of the person and suppresses their addresses"},
    "UserQuery": {
        "disabled": "those who sign in no more, in place of those who do",
        "role": "only those of this role",
    },
    "AuditQuery": {
        "actor": "only what this person or key did, as `user:7` or `key:3`",
        "action": "only what was done under this name, as `campaign_send`",
        "subject": "only what was done to this, as `campaign:3`",
    },
    "Lift": {"reason": "why it is taken off, for the evidence; needed here or in the body"},
    "SuppressionQuery": {
        "reason": "only those for this reason",
        "address": "exactly this address",
        "search": "a part of the address",
    },
    "MessageQuery": {
        "to": "exactly this recipient",
        "source_type": "only those sent for this",
        "contact_id": "only those to this contact",
    },
    "EventQuery": {
        "resource_uid": "only those about exactly this",
        "resource_name": "only those about something of this name",
    },
    "CampaignQuery": {
        "status": "only those with this status; `live` is `active`, `cancelled` and `scheduled` select by `phase`",
        "phase": "only those in this phase",
        "approval_state": "only those that stand so with approval",
        "asked": "only those that wait for somebody to approve of them, or that do not",
    },
    "RecipientQuery": {
        "opened": "only those opened by people, by machines alone, or by nobody",
        "clicked": "only those clicked by people, by machines alone, or by nobody",
        "link": "only those in which this link was clicked, by its number",
        "domain": "only those at this mailbox provider",
        "country": "only those to this country, by two letters",
        "problem": "only those with this trouble, by its `key`",
        "pending": "only those that are still open, or that are not",
        "accepted": "only those that the next hop took, or did not",
        "unsubscribed": "only those because of which somebody opted out, or nobody did",
    },
    "ExplainQuery": {"contact_id": "the contact whose case is explained; needed"},
    "TemplateQuery": {"standalone": "only those that belong to no campaign and no flow, or only those that do"},
    "FlowQuery": {"event": "only those that this event starts"},
    "RunQuery": {
        "step": "only those who came to this step",
        "outcome": "with `step`: only those who left it so, or wait there",
        "message": "with `step`: only those to whom it sent something that became this",
        "reason": "with `step` why it did nothing or they left it, else why runs ended; empty: for no reason",
        "since": "only those who came since then, to the step if there is one",
    },
    "ReportQuery": {"range": "of how many days it tells"},
    "IncomingQuery": {
        "from": "exactly this number",
        "kind": "only what was taken for this",
        "unseen": "only what nobody has looked at, or what somebody has",
    },
    "ImportQuery": {"resource": "only those of this"},
    "CaptureQuery": {
        "search": "words to look for in recipient and subject, and in what an SMS says",
        "message_id": "only what this message became",
    },
    "WebhookQuery": {"enabled": "only those that get events, or that do not"},
    "DeliveryQuery": {"event": "only those of events of this name", "event_id": "only those of this event"},
}
# Exports take the filters of the lists
for _name in ("Contact", "Event", "Message", "Run"):
    WORDS[f"{_name}ExportQuery"] = WORDS[f"{_name}Query"]
