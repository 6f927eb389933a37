"""The pages of the web interface: one module and one blueprint for each subject."""

NAMES = (
    "activity", "approvals", "apps", "audit", "backup_store", "backups", "brand", "bulk_actions",
    "campaign_content", "campaign_recipients", "account_settings",
    "campaign_report", "campaigns", "canvas", "composer", "connect", "contact_detail", "contacts",
    "control_group",
    "content_files", "docs", "editor",
    "editor_sections", "experiments", "exports", "flow_editor", "flow_replay", "flow_runs",
    "flow_simulation", "flows", "home", "identities", "imports", "lists", "login", "messages",
    "own_access", "pictures", "proposals", "roles", "segments", "sending", "settings", "setup", "sign_in",
    "sign_in_settings",
    "signup_forms", "suppressions", "template_detail", "templates", "translations", "transports", "users", "webhooks",
)  # fmt: skip
