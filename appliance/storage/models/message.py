"""Tables of messages (the ledger), links, hits, events and webhooks."""

from peewee import SQL, BlobField, BooleanField, CompositeKey, FloatField, ForeignKeyField, IntegerField, TextField

from appliance.storage.database import Json, Table, Time
from appliance.storage.models.account import Account, ApiKey, Contact
from appliance.storage.models.campaigns import Campaign
from appliance.storage.models.content import Template
from appliance.storage.models.flows import Flow, Run

OPEN = ("queued", "held", "sending")


class Message(Table):
    """A row of the ledger: one message to one address, which ends in exactly one final status.

    The statuses are described in docs/decisions.md#7 and docs/decisions.md#8.
    """

    account = ForeignKeyField(Account, index=False)
    contact = ForeignKeyField(Contact, null=True, on_delete="SET NULL", index=True)
    campaign = ForeignKeyField(Campaign, null=True, on_delete="SET NULL", index=False)
    flow = ForeignKeyField(Flow, null=True, on_delete="SET NULL", index=False)
    run = ForeignKeyField(Run, null=True, on_delete="SET NULL", index=False)
    step_id = IntegerField(null=True)
    round = IntegerField(default=0, constraints=[SQL("DEFAULT 0")])  # how often its run had left the step before
    template = ForeignKeyField(Template, null=True, on_delete="SET NULL", index=True)
    channel = TextField()
    recipient = TextField(null=True)  # the address that it is sent to; the API shows it as `to`
    recipient_key = TextField(null=True)  # the normal form of the address
    sender = TextField(null=True)
    reply_to = TextField(null=True)
    subject = TextField(null=True)
    status = TextField()
    skip_reason = TextField(null=True)
    source_type = TextField()
    transactional = BooleanField(default=False)
    test = BooleanField(default=False)
    provider = TextField()
    provider_id = TextField(null=True)
    idempotency_key = TextField(null=True)
    internet_message_id = TextField(null=True)
    tags = Json(null=True)
    segments = IntegerField(null=True)
    attempts = IntegerField(default=0)
    uncertain_count = IntegerField(default=0)
    # The time of the next action on an open message: the end of a hold, or the next attempt.
    due_at = Time(null=True)
    first_attempt_at = Time(null=True)  # also the value of the Date header
    claimed_by = TextField(null=True)  # the id of the process that is sending it
    body_hash = IntegerField(null=True)  # hash of the bytes that were sent, as a repetition must send the same bytes
    error_code = TextField(null=True)
    error_smtp = IntegerField(null=True)
    error_enhanced = TextField(null=True)
    error_text = TextField(null=True)
    sent_at = Time(null=True)
    delivered_at = Time(null=True)
    opened_at = Time(null=True)
    clicked_at = Time(null=True)
    bounced_at = Time(null=True)
    # The group of the recipient in the test of its campaign (`experiments/assignment.py`): a variant from 1, 0 while it
    # waits for the winner, -1 if it is held out; null without a test.
    variant = IntegerField(null=True)
    variant_batch = IntegerField(null=True)  # the batch of the test from 1; null for those who got the winner
    send_time_id = IntegerField(null=True)  # the row of `SendTime` by which a campaign with a local time sends it
    created_at = Time()
    updated_at = Time()

    class Meta:
        # Queries read the ledger by campaign and status, and newest first.
        indexes = ((("campaign", "status"), False), (("account", "created_at", "id"), False))


Message.add_index(
    SQL("CREATE UNIQUE INDEX message_campaign_contact ON message (campaign_id, contact_id) WHERE campaign_id NOT NULL")
)
Message.add_index(SQL("CREATE UNIQUE INDEX message_run_step ON message (run_id, step_id, round) WHERE run_id NOT NULL"))
# The messages of a flow are counted by step. The index has no messages of campaigns: they have no run, although they
# refer to the hidden flow.
Message.add_index(
    SQL(
        "CREATE INDEX message_of_flow ON message (flow_id, step_id, status, test, skip_reason, created_at, opened_at, "
        "clicked_at) WHERE run_id NOT NULL"
    )
)
# The open messages of a flow by due time, for example those that wait while the flow is paused.
Message.add_index(
    SQL(
        "CREATE INDEX message_waiting ON message (flow_id, due_at) "
        "WHERE run_id NOT NULL AND status IN ('queued', 'held')"
    )
)
# The open messages of a campaign, by due time and id: SQLite appends the id to each index. A campaign has one channel.
# The rows of a campaign with a local time are spread over this index, so it has no further column to compare.
DUE_INDEX = (
    "CREATE INDEX message_due ON message (campaign_id, due_at) "
    "WHERE campaign_id NOT NULL AND status IN ('queued', 'held') AND run_id IS NULL"
)
Message.add_index(SQL(DUE_INDEX))
# Accounts share the sending capacity even if one has many open messages, so each account has a queue of single messages
# and, in the next index, a queue of messages of flows. The channel is a column because email and SMS have separate
# senders, and neither may read through the messages of the other.
Message.add_index(
    SQL(
        "CREATE INDEX message_due_alone ON message (account_id, channel, due_at, id) "
        "WHERE campaign_id IS NULL AND run_id IS NULL AND status IN ('queued', 'held')"
    )
)
Message.add_index(
    SQL(
        "CREATE INDEX message_due_of_flows ON message (account_id, channel, due_at, id) "
        "WHERE run_id NOT NULL AND status IN ('queued', 'held')"
    )
)
# Reports of a provider name a message by the id that the provider gave it.
Message.add_index(SQL("CREATE INDEX message_provider_id ON message (provider_id, provider) WHERE provider_id NOT NULL"))
# The SMS to a phone number by account. The last SMS to the number shows which account an incoming SMS answers.
Message.add_index(
    SQL("CREATE INDEX message_sms_recipient ON message (recipient_key, account_id, id) WHERE channel = 'sms'")
)
# The opened and the clicked messages of a campaign, by the time of the first open or click.
Message.add_index(SQL("CREATE INDEX message_opened ON message (campaign_id, opened_at) WHERE opened_at NOT NULL"))
Message.add_index(SQL("CREATE INDEX message_clicked ON message (campaign_id, clicked_at) WHERE clicked_at NOT NULL"))
# The same of campaigns with a test, by variant and batch: decisions count them without reading the rows.
VARIANT_INDEXES = tuple(
    f"CREATE INDEX message_variant_{engagement} ON message (campaign_id, variant, variant_batch, {engagement}_at) "
    f"WHERE variant NOT NULL AND {engagement}_at NOT NULL"
    for engagement in ("opened", "clicked")
)
for _index in VARIANT_INDEXES:
    Message.add_index(SQL(_index))
# The erasure of an address finds its messages by this index if they no longer have a contact.
Message.add_index(
    SQL("CREATE INDEX message_without_contact ON message (account_id, recipient_key) WHERE contact_id IS NULL")
)


class RawMessage(Table):
    """An email as a program submitted it by SMTP, shared by the messages to its recipients.

    `sending/messages/submitted.py` stores small ones here and large ones on disk, beside attached files.
    """

    account = ForeignKeyField(Account)
    api_key = ForeignKeyField(ApiKey, null=True, on_delete="SET NULL", index=False)
    message_id_hash = BlobField(null=True)  # hash of Message-ID and content, by which a repeat is recognized
    recipient_count = IntegerField()
    size = IntegerField()
    created_at = Time()
    sha256 = TextField(null=True)  # the name of its file; null if `content` has its bytes
    content = BlobField(null=True)

    class Meta:
        indexes = ((("api_key", "created_at"), False),)


RawMessage.add_index(
    SQL("CREATE INDEX raw_message_repeated ON raw_message (api_key_id, message_id_hash) WHERE message_id_hash NOT NULL")
)
RawMessage.add_index(SQL("CREATE INDEX raw_message_sha256 ON raw_message (sha256) WHERE sha256 NOT NULL"))


# Assignments that cancel an open message. One whose earlier attempt may have been accepted becomes uncertain instead.
CANCEL_OPEN = (
    "status = CASE WHEN uncertain_count > 0 THEN 'uncertain' ELSE 'cancelled' END, due_at = NULL, "
    "error_code = CASE WHEN uncertain_count > 0 THEN 'in_doubt' ELSE error_code END, "
    "error_text = CASE WHEN uncertain_count > 0 AND recipient_key IS NOT NULL THEN 'not repeated: cancelled' "
    "ELSE error_text END"
)
# Value of `MessageContent.shown_as` for a message that shows no contact's values, although its recipient is a contact.
NO_CONTACT_ID = 0


class BulkContent(Table):
    """The HTML and text that the messages of one bulk email share (`sending/messages/bulk_send.py`)."""

    account = ForeignKeyField(Account, index=True)
    body = TextField(null=True)
    text = TextField(null=True)
    created_at = Time()


class MessageContent(Table):
    """The content of a message that has no shared content; messages of campaigns use a template revision."""

    message = ForeignKeyField(Message, unique=True, on_delete="CASCADE")
    subject = TextField(null=True)
    body = TextField(null=True)
    text = TextField(null=True)
    headers = Json(default=dict)
    data = Json(default=dict)
    preheader = TextField(null=True)
    from_name = TextField(null=True)
    design = Json(null=True)
    language = TextField(null=True)  # the language of its texts if they are a translation of the template's
    # For a test or a copy to `cc` or `bcc`: the id of the contact whose values it shows, or `NO_CONTACT_ID`
    shown_as = IntegerField(null=True)
    links = Json(null=True)  # for marketing mail: its URLs by link number, with merge tags filled in
    # For a message to several recipients: how its recipient was given (to, cc, bcc), and the id of the row of `to`.
    kind = TextField(null=True)
    first_message_id = IntegerField(null=True)
    has_attachments = BooleanField(default=False)
    # For a message of a bulk email: the row that has its HTML and text, which are null here.
    bulk = ForeignKeyField(BulkContent, null=True, on_delete="SET NULL", index=False)
    # Whether opens are tracked although it is not a marketing message and its recipient may not be a contact.
    tracks_opens = BooleanField(default=False)
    # The submitted email whose bytes it sends unchanged.
    raw_message = ForeignKeyField(RawMessage, null=True, on_delete="SET NULL", index=False)


# The messages that send the same submitted email.
MessageContent.add_index(
    SQL("CREATE INDEX message_content_raw ON message_content (raw_message_id) WHERE raw_message_id NOT NULL")
)
# The erasure of a contact finds by this index the test emails that show the contact's values.
MessageContent.add_index(
    SQL("CREATE INDEX message_content_shown_as ON message_content (shown_as) WHERE shown_as NOT NULL")
)

# The rows of a message to several recipients.
MessageContent.add_index(
    SQL(
        "CREATE INDEX message_content_first_message_id ON message_content (first_message_id) "
        "WHERE first_message_id NOT NULL"
    )
)


# The messages of a bulk email.
MessageContent.add_index(SQL("CREATE INDEX message_content_bulk ON message_content (bulk_id) WHERE bulk_id NOT NULL"))


class Attachment(Table):
    """A file that is attached to a message; `sending/messages/attachments.py` stores its content on disk."""

    message = ForeignKeyField(Message, on_delete="CASCADE", index=True)
    filename = TextField()
    content_type = TextField()
    content_id = TextField(null=True)  # of an inline image: its id in the HTML
    size = IntegerField()
    sha256 = TextField(null=True)  # the name of its content; null once the content was deleted


# The files that are stored, by hash to find those that no message needs, and by message to find old ones.
Attachment.add_index(SQL("CREATE INDEX attachment_sha256 ON attachment (sha256) WHERE sha256 NOT NULL"))
Attachment.add_index(SQL("CREATE INDEX attachment_stored ON attachment (message_id) WHERE sha256 NOT NULL"))


class RetryPayload(Table):
    """The exact bytes and envelope of an uncertain message, which may be repeated once (docs/decisions.md#8, P3)."""

    message = ForeignKeyField(Message, unique=True, on_delete="CASCADE")
    mail_from = TextField()
    rcpt_to = TextField()
    content = BlobField()
    subject = TextField()
    sender = TextField()
    internet_message_id = TextField()
    parts = IntegerField(null=True)
    has_opt_out_hint = BooleanField(default=False)
    lookup_count = IntegerField(null=True)  # lookups that did not find the message at the provider; null: no lookup


class SendLog(Table):
    """A claim or acceptance of an email that its message does not show yet (`sending/messages/queue.py`)."""

    id = None
    message_id = IntegerField(primary_key=True)  # no foreign key: a row lasts for some tenths of a second
    batch = IntegerField(null=True)  # the transaction that claimed it; null if the message shows the claim already
    process = TextField(null=True)
    first_attempt_at = Time(null=True)
    body_hash = IntegerField(null=True)
    sent_at = Time(null=True)  # the time of its acceptance; null while it is being sent
    subject = TextField(null=True)
    sender = TextField(null=True)
    internet_message_id = TextField(null=True)
    provider = TextField(null=True)  # the transport that it is sent with


class RestoredSend(Table):
    """A message that was sent after the backup from which the database was restored, and that has no row in it.

    The message that the campaign or flow creates for its recipient is not sent (`sending/messages/restored_sends.py`).
    """

    account = ForeignKeyField(Account, index=False)
    message_id = IntegerField(index=True)  # its id in the database that was replaced by the restore
    # Its source. A message of a series has the repeated campaign and the date.
    campaign = ForeignKeyField(Campaign, null=True, on_delete="CASCADE", index=False)
    due_at = Time(null=True)
    flow = ForeignKeyField(Flow, null=True, on_delete="CASCADE", index=False)
    step_id = IntegerField(null=True)
    run_id = IntegerField(null=True)  # null if the run began after the backup
    contact_id = IntegerField(null=True)  # no foreign key: the contact may have been created after the backup
    address_hash = BlobField()  # the first bytes of the hash of its recipient's address (`storage/journal.py`)
    sent_at = Time()
    is_doubtful = BooleanField(default=False)  # whether it is unknown if a server accepted it

    class Meta:
        indexes = ((("campaign", "address_hash"), False), (("flow", "step_id", "address_hash"), False))


class Link(Table):
    """A link in the emails of a campaign or template. Tracking tokens contain the link's number and need no rows."""

    account = ForeignKeyField(Account)
    campaign = ForeignKeyField(Campaign, null=True, on_delete="CASCADE", index=False)
    template = ForeignKeyField(Template, null=True, on_delete="CASCADE", index=True)
    number = IntegerField()
    url = TextField()  # the URL, with merge tags not filled in
    words = TextField()  # the visible text of the link

    class Meta:
        indexes = ((("campaign", "number"), True),)


class Hit(Table):
    """A request for a tracking pixel or link, with a verdict: whether a person or a machine made it.

    Contacts whose tracking is `aggregate` are counted anonymously: `message` and all client fields are null.
    """

    account = ForeignKeyField(Account, index=False)
    campaign = ForeignKeyField(Campaign, null=True, on_delete="SET NULL", index=False)
    message = ForeignKeyField(Message, null=True, on_delete="SET NULL", index=False)
    kind = TextField()  # open, click
    number = IntegerField(null=True)  # the number of the clicked link
    method = TextField()
    ip = TextField(null=True)  # truncated or null, by the privacy setting of the account
    user_agent = TextField(null=True)
    referrer = TextField(null=True)
    verdict = TextField(null=True)  # human, machine, unsure; null until other hits at about the same time have arrived
    reason = TextField(null=True)
    event_id = IntegerField(null=True)  # the event of the hit, if it was the first open or click of its message
    test = BooleanField(default=False)
    at = Time()

    class Meta:
        # The first index lists the hits of a message in order; from the second the hits of a campaign are counted
        # without reading the rows.
        indexes = ((("message", "at"), False), (("campaign", "kind", "number", "verdict", "message"), False))


Hit.add_index(SQL("CREATE INDEX hit_waiting ON hit (at) WHERE verdict IS NULL"))


class CapturedMessage(Table):
    """A message that was delivered to the built-in inbox instead of its recipient."""

    account = ForeignKeyField(Account, index=False)
    channel = TextField(default="email")
    message_id = IntegerField(null=True)
    mail_from = TextField()
    rcpt_to = TextField()
    from_header = TextField(null=True)
    subject = TextField(null=True)
    preview = TextField(null=True)
    size = IntegerField()
    source = BlobField()  # the bytes as received; for an SMS its text
    received_at = Time()

    class Meta:
        indexes = ((("account", "id"), False), (("message_id",), False))


class Event(Table):
    """Something that happened to a contact or in the account, recorded by the service or submitted by a client."""

    account = ForeignKeyField(Account, index=False)
    contact = ForeignKeyField(Contact, null=True, on_delete="SET NULL", index=False)
    user_id = IntegerField(null=True)
    event = TextField()
    amount = FloatField(null=True)
    data = Json(default=dict)
    idempotency_key = TextField(null=True)
    resource_uid = TextField(null=True)
    resource_name = TextField(null=True)
    resource_url = TextField(null=True)
    test = BooleanField(default=False)
    generated = BooleanField(default=False)
    quiet = BooleanField(default=False)  # the event is only recorded and starts no flow
    # The import, bulk action or campaign that recorded it with many others: `import:12`, `act:3`, `campaign:7`.
    batch = TextField(null=True)
    chain_depth = IntegerField(default=0)
    ip = TextField(null=True)
    user_agent = TextField(null=True)
    browser = TextField(null=True)
    os = TextField(null=True)
    device_type = TextField(null=True)
    referrer = TextField(null=True)
    utm_source = TextField(null=True)
    utm_medium = TextField(null=True)
    utm_term = TextField(null=True)
    utm_content = TextField(null=True)
    utm_campaign = TextField(null=True)
    created_at = Time()
    updated_at = Time()


# Each index begins with the columns of a filter, continues with the sort order of the list, and ends with the other
# filtered columns. So a page is found and all matches are counted without reading the events themselves.
Event.add_index(SQL("CREATE INDEX event_listed ON event (account_id, created_at, id, test, batch)"))
Event.add_index(SQL("CREATE INDEX event_tests ON event (account_id, created_at, id, event, test) WHERE test"))
Event.add_index(
    SQL(
        "CREATE INDEX event_resource ON event (account_id, resource_uid, created_at, id, event, test) "
        "WHERE resource_uid NOT NULL"
    )
)
Event.add_index(
    SQL(
        "CREATE INDEX event_resource_name ON event (account_id, resource_name, created_at, id, event, test) "
        "WHERE resource_name NOT NULL"
    )
)
# Filters find the contacts with an event of a name since a time by this index alone; it has the same columns as the
# index `event_of_contact` below.
Event.add_index(
    SQL(
        "CREATE INDEX event_of_name ON event (account_id, event, created_at, id, contact_id, test, generated, "
        "json_extract(data, '$.verdict'))"
    )
)
Event.add_index(
    SQL(
        "CREATE UNIQUE INDEX event_idempotency ON event (account_id, event, idempotency_key) "
        "WHERE idempotency_key NOT NULL"
    )
)
# This index has all columns that filters on the events of a contact need, with the verdict from `data`, so that SQLite
# reads only the index.
Event.add_index(
    SQL(
        "CREATE INDEX event_of_contact ON event (contact_id, event, created_at, test, generated, "
        "json_extract(data, '$.verdict'))"
    )
)


# The state of direct delivery:


class MailPolicy(Table):
    """The cached MTA-STS policy of a recipient domain (RFC 8461), until it expires."""

    domain = TextField(primary_key=True)
    policy_id = TextField()
    mode = TextField()  # enforce, testing, none
    hosts = Json(default=list)
    fetched_at = Time()
    expires_at = Time()


class WarmUpDay(Table):
    """A day of the warm-up of a sending domain: its quota, and the results of the messages of that day."""

    domain = TextField()
    day = IntegerField()  # days since 1970, UTC
    step = IntegerField()  # the step of the warm-up plan
    cap = IntegerField()  # the quota of messages
    accepted = IntegerField(default=0)
    hard = IntegerField(default=0)  # rejections of unknown recipients
    refused = IntegerField(default=0)  # rejections by policy or reputation (enhanced codes 4.7 and 5.7)
    complaints = IntegerField(default=0)

    class Meta:
        primary_key = CompositeKey("domain", "day")


# The usage of SMS:


class SmsDay(Table):
    """The number of SMS parts that an account used on a day."""

    account = ForeignKeyField(Account, index=False)
    day = IntegerField()  # ordinal of the day in the account's time zone (1 is 0001-01-01)
    parts = IntegerField()

    class Meta:
        primary_key = CompositeKey("account", "day")


class Webhook(Table):
    """A URL to which events are delivered; its secrets are encrypted with the installation's key."""

    account = ForeignKeyField(Account, index=True)
    url = TextField()
    events = Json(default=list)  # empty for all events
    enabled = BooleanField(default=True)
    secret = BlobField()
    old_secret = BlobField(null=True)  # the secret before a rotation, which also signs until `old_secret_until`
    old_secret_until = Time(null=True)
    after_event_id = IntegerField(default=0)  # events up to this id are not delivered
    failing_since = Time(null=True)  # the first failure since the last success
    failed_at = Time(null=True)  # the last failure
    disabled_at = Time(null=True)
    disabled_reason = TextField(null=True)  # why the service disabled it: failing, gone
    deleted_at = Time(null=True)  # a deleted webhook is hidden until a job has deleted its delivery log in chunks
    created_at = Time()
    updated_at = Time()


class WebhookDelivery(Table):
    """The delivery of one event to one webhook."""

    webhook = ForeignKeyField(Webhook, on_delete="CASCADE", index=False)
    event_id = IntegerField(index=True)
    status = TextField(default="pending")  # pending, delivered, failed, cancelled
    attempts = IntegerField(default=0)
    response_status = IntegerField(null=True)
    response_text = TextField(null=True)  # the beginning of the response body
    error = TextField(null=True)  # why there was no response
    duration_ms = IntegerField(null=True)
    next_attempt_at = Time(null=True)
    last_attempt_at = Time(null=True)
    created_at = Time()
    updated_at = Time()

    class Meta:
        indexes = ((("webhook", "event_id"), True), (("webhook", "status", "event_id"), False))


WebhookDelivery.add_index(
    SQL(
        "CREATE INDEX webhook_delivery_due ON webhook_delivery (webhook_id, next_attempt_at, id) "
        "WHERE status = 'pending'"
    )
)
