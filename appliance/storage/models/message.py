"""The ledger: one row for each recipient of each message, and what happened to it."""

from peewee import SQL, BlobField, BooleanField, CompositeKey, FloatField, ForeignKeyField, IntegerField, TextField

from appliance.storage.models.account import Account
from appliance.storage.models.contact import Contact
from appliance.storage.models.content import Template
from appliance.storage.models.flow import Campaign, Flow, Run
from appliance.storage.models.kinds import Json, Table, Time

OPEN = ("queued", "held", "sending")


class Message(Table):
    """One message to one address; ends in exactly one final status (docs/decisions.md#7 and #8)."""

    account = ForeignKeyField(Account, index=False)
    contact = ForeignKeyField(Contact, null=True, on_delete="SET NULL", index=True)
    campaign = ForeignKeyField(Campaign, null=True, on_delete="SET NULL", index=False)
    flow = ForeignKeyField(Flow, null=True, on_delete="SET NULL", index=False)
    run = ForeignKeyField(Run, null=True, on_delete="SET NULL", index=False)
    step_id = IntegerField(null=True)
    template = ForeignKeyField(Template, null=True, on_delete="SET NULL", index=True)
    channel = TextField()
    recipient = TextField(null=True)  # the address, as `to`
    recipient_key = TextField(null=True)  # its normal form
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
    doubts = IntegerField(default=0)
    # When an open row may move: end of a hold, next attempt
    due_at = Time(null=True)
    dated_at = Time(null=True)  # its Date header: the first attempt
    claimed_by = TextField(null=True)  # the process that has it in hand
    digest = IntegerField(null=True)  # of the bytes it left with, so that only those are ever repeated
    error_code = TextField(null=True)
    error_smtp = IntegerField(null=True)
    error_enhanced = TextField(null=True)
    error_text = TextField(null=True)
    sent_at = Time(null=True)
    delivered_at = Time(null=True)
    opened_at = Time(null=True)
    clicked_at = Time(null=True)
    bounced_at = Time(null=True)
    created_at = Time()
    updated_at = Time()

    class Meta:
        # The ledger is asked: by campaign and status, what is due, and newest first
        indexes = ((("campaign", "status"), False), (("account", "created_at", "id"), False))


Message.add_index(
    SQL("CREATE UNIQUE INDEX message_campaign_contact ON message (campaign_id, contact_id) WHERE campaign_id NOT NULL")
)
Message.add_index(SQL("CREATE UNIQUE INDEX message_run_step ON message (run_id, step_id) WHERE run_id NOT NULL"))
# Flows are counted by step; of a campaign's rows, which name its hidden flow, none stands here
Message.add_index(
    SQL(
        "CREATE INDEX message_of_flow ON message (flow_id, step_id, status, test, skip_reason, created_at, opened_at, "
        "clicked_at) WHERE run_id NOT NULL"
    )
)
# What of a flow waits: for its time, or for the flow to go on
Message.add_index(
    SQL(
        "CREATE INDEX message_waiting ON message (flow_id, due_at) "
        "WHERE run_id NOT NULL AND status IN ('queued', 'held')"
    )
)
# Each channel has its own sender, which never looks through what waits for the other
Message.add_index(
    SQL(
        "CREATE INDEX message_due ON message (campaign_id, channel, due_at, id) "
        "WHERE status IN ('queued', 'held') AND run_id IS NULL"
    )
)
# Accounts share what leaves, however much one of them has waiting: each has a line of single messages, and one of what
# its flows send
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
# What a provider calls it, for what it tells about it later
Message.add_index(SQL("CREATE INDEX message_provider_id ON message (provider_id, provider) WHERE provider_id NOT NULL"))
# What a phone number was sent, by whom, and what last
Message.add_index(SQL("CREATE INDEX message_texted ON message (recipient_key, account_id, id) WHERE channel = 'sms'"))
# Who opened and clicked, and when for the first time
Message.add_index(SQL("CREATE INDEX message_opened ON message (campaign_id, opened_at) WHERE opened_at NOT NULL"))
Message.add_index(SQL("CREATE INDEX message_clicked ON message (campaign_id, clicked_at) WHERE clicked_at NOT NULL"))
# What went to an address that is nobody's any more, for the day it is erased
Message.add_index(SQL("CREATE INDEX message_nobodys ON message (account_id, recipient_key) WHERE contact_id IS NULL"))


class MessageContent(Table):
    """What a single message says; campaigns keep theirs in a template revision."""

    message = ForeignKeyField(Message, unique=True, on_delete="CASCADE")
    subject = TextField(null=True)
    body = TextField(null=True)
    text = TextField(null=True)
    headers = Json(default=dict)
    data = Json(default=dict)
    preheader = TextField(null=True)
    from_name = TextField(null=True)
    design = Json(null=True)
    shown_as = IntegerField(null=True)  # of a test: the contact whose values it shows
    links = Json(null=True)  # of marketing mail: its addresses with merge tags in place, by number


# Tests with somebody's values, for the day they are erased
MessageContent.add_index(
    SQL("CREATE INDEX message_content_shown_as ON message_content (shown_as) WHERE shown_as NOT NULL")
)


class Repeat(Table):
    """The bytes of a message in doubt, for the one repeat of it (docs/decisions.md#8, P3)."""

    message = ForeignKeyField(Message, unique=True, on_delete="CASCADE")
    mail_from = TextField()
    rcpt_to = TextField()
    content = BlobField()
    subject = TextField()
    sender = TextField()
    internet_message_id = TextField()
    parts = IntegerField(null=True)
    hinted = BooleanField(default=False)
    looked = IntegerField(null=True)  # how often its provider was asked for it in vain; null: it is not looked for


class Link(Table):
    """A link of what was sent, as it was numbered then; a token holds the number, so recipients need no rows."""

    account = ForeignKeyField(Account)
    campaign = ForeignKeyField(Campaign, null=True, on_delete="CASCADE", index=False)
    template = ForeignKeyField(Template, null=True, on_delete="CASCADE", index=True)
    number = IntegerField()
    url = TextField()  # with merge tags in place
    words = TextField()  # what a reader sees of it

    class Meta:
        indexes = ((("campaign", "number"), True),)


class Hit(Table):
    """A pixel or a link that was asked for, as it came, and who we think asked.

    Who wants to be counted without being known is: there `message` is null, and so is all that is about the asker.
    """

    account = ForeignKeyField(Account, index=False)
    campaign = ForeignKeyField(Campaign, null=True, on_delete="SET NULL", index=False)
    message = ForeignKeyField(Message, null=True, on_delete="SET NULL", index=False)
    kind = TextField()  # open, click
    number = IntegerField(null=True)  # of the link
    method = TextField()
    ip = TextField(null=True)  # as far as the account keeps it
    user_agent = TextField(null=True)
    referrer = TextField(null=True)
    verdict = TextField(null=True)  # human, machine, unsure; null until what came with it is known too
    reason = TextField(null=True)
    event_id = IntegerField(null=True)  # the event that it was told by, if it was the first of its sort
    test = BooleanField(default=False)
    at = Time()

    class Meta:
        # All of a message in their order, and the sums of a campaign without reading a row
        indexes = ((("message", "at"), False), (("campaign", "kind", "number", "verdict", "message"), False))


Hit.add_index(SQL("CREATE INDEX hit_waiting ON hit (at) WHERE verdict IS NULL"))


class Captured(Table):
    """A message that the built-in server took instead of the world."""

    account = ForeignKeyField(Account, index=False)
    channel = TextField(default="email")
    message_id = IntegerField(null=True)
    mail_from = TextField()
    rcpt_to = TextField()
    from_header = TextField(null=True)
    subject = TextField(null=True)
    preview = TextField(null=True)
    size = IntegerField()
    source = BlobField()  # the bytes as they came over the wire; of an SMS its text
    received_at = Time()

    class Meta:
        indexes = ((("account", "id"), False), (("message_id",), False))


class Event(Table):
    """Something that happened."""

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
    quiet = BooleanField(default=False)  # recorded only: it starts no flow
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


# Each begins with what a list is filtered by, goes on in its order, and holds what else is asked of many: a page is
# found, and all are counted, without reading the events themselves
Event.add_index(SQL("CREATE INDEX event_listed ON event (account_id, created_at, id, test)"))
Event.add_index(SQL("CREATE INDEX event_tests ON event (account_id, created_at, id, event, test) WHERE test"))
Event.add_index(
    SQL(
        "CREATE INDEX event_resource ON event (account_id, resource_uid, created_at, id, event, test) "
        "WHERE resource_uid NOT NULL"
    )
)
Event.add_index(
    SQL(
        "CREATE INDEX event_named ON event (account_id, resource_name, created_at, id, event, test) "
        "WHERE resource_name NOT NULL"
    )
)
# Who did something lately, all at once: as covering as the index on each person's events below
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
# All that filters ask of a person's events, so that the events themselves are not read: the verdict stands in the data
Event.add_index(
    SQL(
        "CREATE INDEX event_of_contact ON event (contact_id, event, created_at, test, generated, "
        "json_extract(data, '$.verdict'))"
    )
)


# What delivery to the recipients' own servers has to remember.


class MailPolicy(Table):
    """What a domain said about encryption of its mail (MTA-STS, RFC 8461), for as long as it said."""

    domain = TextField(primary_key=True)
    policy_id = TextField()
    mode = TextField()  # enforce, testing, none
    hosts = Json(default=list)
    fetched_at = Time()
    expires_at = Time()


class WarmUpDay(Table):
    """A day of a sending domain's beginning: how many messages it may send, and how that went."""

    domain = TextField()
    day = IntegerField()  # since 1970, UTC
    step = IntegerField()
    cap = IntegerField()
    accepted = IntegerField(default=0)
    hard = IntegerField(default=0)  # there was no such recipient
    refused = IntegerField(default=0)  # for what we are: 4.7, 5.7
    complaints = IntegerField(default=0)

    class Meta:
        primary_key = CompositeKey("domain", "day")


# What SMS have cost.


class SmsDay(Table):
    """How many paid parts an account used on a day."""

    account = ForeignKeyField(Account, index=False)
    day = IntegerField()  # of the account's time zone, since the first of the year 1
    parts = IntegerField()

    class Meta:
        primary_key = CompositeKey("account", "day")
