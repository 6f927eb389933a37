"""Names that stand on the wire: headers, events, statuses, skip reasons, scopes, roles, public paths."""

from tests.rules.contract.rows import lines

_HEADERS = """
= every answer
D X-Request-Id,X-Api-Version
= lists
S X-Total-Count,X-Total-Pages,X-Page-Number
D X-Next-Page,X-Prev-Page
= rates
D RateLimit-Limit,RateLimit-Remaining,RateLimit-Reset
D Retry-After
= single answers
O X-Scopes -- what a key may do, for whoever has only the key
D WWW-Authenticate,Allow,X-Ignored-Fields,Idempotent-Replayed
D Authorization -- the answer to a login
= requests
S Authorization,Content-Type
D Idempotency-Key
"""
HEADERS = tuple(
    (line.heading, line.origin, name) for line in lines(_HEADERS) for name in line.cells[0].split(",")
)  # fmt: skip

_EVENTS = """
= contact
D contact_add,contact_update,contact_delete,contact_merge,tag_add,tag_remove
= audience
D list_add,list_remove,segment_enter,segment_exit
= consent
D opt_in,opt_out,double_opt_in_requested,double_opt_in_confirmed,form_submitted
O erase_requested -- asked for on the preference page; who does it is a person
= email
D email_sent,email_delivered,email_opened,email_clicked,email_soft_bounced,email_bounced,email_complained
D email_complaint_unverified,email_failed,email_skipped,email_replied
= sms
D sms_sent,sms_delivered,sms_failed,sms_skipped,message,keyword
O sms_clicked -- links in SMS are counted too
= flow
D flow_enter,flow_exit,flow_goal,date_reached
O flow_paused -- whoever listens on another address learns it
= campaign
D campaign_started,campaign_paused,campaign_completed,domain_verified,domain_failed
O campaign_test_decided -- programs act on the winner of an A/B test
O webhook_disabled -- whoever listens on another address learns it
O import_completed,import_undone,bulk_action_completed -- one line of the log for many events
= client
D product_view,checkout,cart_add,cart_remove,cart_abandoned,browse_abandoned,order_paid,order_shipped,password_reset
"""
EVENTS = tuple((line.heading, line.origin, name) for line in lines(_EVENTS) for name in line.cells[0].split(","))
EVENT_PATTERN = r"[a-z][a-z0-9_]{0,63}"

_SKIPS = """
D unsubscribed,suppressed_hard_bounce,suppressed_soft_bounce,suppressed_complaint,suppressed_manual
D suppressed_erased,suppressed_stop_keyword
D no_channel,invalid_address,not_verified,no_consent,frequency_cap,quiet_hours_expired
D overdue_on_resume,render_error,contact_deleted,smtputf8_unsupported
O country_not_allowed -- SMS go only to the countries that the operator named
O sender_not_allowed -- nobody who may write to that country sends it
O held_out -- the holdout of a campaign
O control_group -- the account's contacts who get no campaigns, to be measured
O too_late -- an answer to a question by SMS that was asked long ago
O transactional_disabled -- the account's switch, met within a flow
O sender_not_ready -- a mail of the service itself, before anybody may send
"""
SKIPS = tuple((line.origin, name) for line in lines(_SKIPS) for name in line.cells[0].split(","))

# Ledger term -> the statuses that it counts
LEDGER = {
    "pending": ("queued", "held", "sending"), "sent": ("sent",), "delivered": ("delivered",), "bounced": ("bounced",),
    "complained": ("complained",), "failed": ("failed",), "skipped": ("skipped",), "cancelled": ("cancelled",),
    "uncertain": ("uncertain",),
}  # fmt: skip
ACCEPTED = ("sent", "delivered", "bounced", "complained")

# From -> to; docs/decisions.md#6 and #12
CAMPAIGN_MOVES = {
    "draft": ("active",), "active": ("draft", "paused", "completed"), "paused": ("active", "completed"),
    "completed": (),
}  # fmt: skip
FLOW_MOVES = {
    "draft": ("active", "archived"), "active": ("paused", "archived"), "paused": ("active", "archived"),
    "archived": ("draft",),
}  # fmt: skip

SCOPES = (
    *(f"{area}:{act}" for area in ("contacts", "templates", "events", "domains", "account", "flows")
      for act in ("read", "write")),
    "campaigns:read", "campaigns:write", "campaigns:send", "campaigns:approve", "messages:read", "messages:send",
)  # fmt: skip
# What a word for several scopes stands for
BUNDLES = {
    "full": SCOPES, "read": tuple(scope for scope in SCOPES if scope.endswith(":read")),
    "send": ("messages:read", "messages:send", "events:read", "events:write"),
}  # fmt: skip
ROLES = ("owner", "admin", "editor", "author", "viewer")
NOT_OF_ROLES = {"author": ("campaigns:send", "messages:send", "campaigns:approve"), "editor": ("campaigns:approve",)}
PREFIXES = ("camp_live_", "camp_test_", "camp_pub_")

# Doors of recipients and providers: what they take
LINKS = (
    ("/u/{token}", ("GET", "HEAD", "POST")), ("/p/{token}", ("GET", "HEAD", "POST")),
    ("/d/{token}", ("GET", "HEAD", "POST")), ("/f/{public_key}", ("GET", "HEAD", "POST")),
    ("/v/{token}", ("GET", "HEAD")), ("/o/{token}.gif", ("GET", "HEAD")), ("/c/{token}", ("GET", "HEAD")),
)  # fmt: skip
HOOKS = ("/hooks/twilio/status", "/hooks/twilio/message", "/hooks/sms", "/hooks/email")
