"""The pages, one module and one blueprint for each noun."""

NAMES = (
    "setup", "live", "welcome", "login", "forgot", "home", "jump", "campaigns", "recipients", "campaign_acts",
    "approvals", "reports", "compose", "compose_content", "compose_people", "compose_send", "gallery_acts",
    "gallery", "templates", "template_acts", "editor", "editor_acts", "editor_audience", "canvas", "picking",
    "media", "outbox", "pictures", "contact_acts", "contact_page", "contact_merge", "contact_filter", "contacts",
    "conversation", "imports", "suppressions", "lists", "segment_acts", "segments", "segment_rows", "flow_acts",
    "flows", "flow_start", "flow_steps", "flow_people", "flow_try", "forms", "activity", "answers", "exports",
    "inbox", "brand", "docs", "data", "doctor", "domains", "sending", "settings", "policies", "keys", "team",
    "audit", "webhooks", "you",
)  # fmt: skip
