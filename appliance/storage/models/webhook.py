"""Who is told of events, and what they answered."""

from peewee import SQL, BlobField, BooleanField, CompositeKey, ForeignKeyField, IntegerField, TextField

from appliance.storage.models.account import Account
from appliance.storage.models.contact import Contact
from appliance.storage.models.kinds import Json, Table, Time
from appliance.storage.models.message import Message


class Webhook(Table):
    """An address that gets events as they happen; secrets are sealed with the installation's key."""

    account = ForeignKeyField(Account, index=True)
    url = TextField()
    events = Json(default=list)  # empty: all of them
    enabled = BooleanField(default=True)
    secret = BlobField()
    old_secret = BlobField(null=True)  # signs along for a while after a rotation
    old_secret_until = Time(null=True)
    after_event_id = IntegerField(default=0)  # events up to this one happened before it listened
    failing_since = Time(null=True)  # when the attempts began to fail of which none succeeded since
    failed_at = Time(null=True)  # the last of them
    disabled_at = Time(null=True)
    disabled_reason = TextField(null=True)  # switched off by the service: failing, gone
    deleted_at = Time(null=True)  # nobody sees it; what is left of its log goes in pieces
    created_at = Time()
    updated_at = Time()


class WebhookDelivery(Table):
    """One event on its way to one webhook."""

    webhook = ForeignKeyField(Webhook, on_delete="CASCADE", index=False)
    event_id = IntegerField(index=True)
    status = TextField(default="pending")  # pending, delivered, failed, cancelled
    attempts = IntegerField(default=0)
    response_status = IntegerField(null=True)
    response_text = TextField(null=True)  # what was answered, cut
    error = TextField(null=True)  # why there is no answer
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


# What came back about messages: what speaks against an address, and which reports were heard.


class Returned(Table):
    """A message that was refused or came back, judged; the address is known by its keyed hash alone."""

    account = ForeignKeyField(Account, index=False)
    message = ForeignKeyField(Message, unique=True, on_delete="CASCADE")
    campaign_id = IntegerField(null=True)
    address_hash = BlobField()
    kind = TextField()  # the name of its class (delivery/classes.py)
    created_at = Time()

    class Meta:
        indexes = ((("account", "address_hash", "created_at"), False),)


# Mail that other servers cannot tell to be ours, for the campaign that has to stop because of it
Returned.add_index(
    SQL(
        "CREATE INDEX returned_unwelcome ON returned (campaign_id, kind) "
        "WHERE kind IN ('authentication', 'unregistered', 'filtered')"
    )
)


class Told(Table):
    """A report that was heard, by the reporter's own name for it: it counts once."""

    id = None
    source = TextField()
    key = TextField()
    created_at = Time(index=True)

    class Meta:
        primary_key = CompositeKey("source", "key")
        without_rowid = True


# What comes back over SMS: what people write, and what providers tell about what was sent.


class Incoming(Table):
    """An SMS that somebody wrote to us, once for each account that it concerns; unknown numbers make no contact."""

    account = ForeignKeyField(Account, index=True)
    contact = ForeignKeyField(Contact, null=True, on_delete="SET NULL", index=True)
    provider = TextField()
    provider_id = TextField(null=True)  # what the provider calls it: it counts once
    sender = TextField(null=True)  # the number it came from; null once it was erased
    recipient = TextField()  # our number
    body = TextField(null=True)
    kind = TextField()  # message, keyword, stop, start, help, refusal (in other words: for a person to look at)
    keyword = TextField(null=True)
    answered_id = IntegerField(null=True)  # the last message to them before, which it may answer
    reply_id = IntegerField(null=True)  # the message that answers it, which goes out whatever their consent
    opted_out = BooleanField(default=False)  # its sender was taken out by it
    seen_at = Time(null=True)  # when somebody looked at a refusal in other words
    test = BooleanField(default=False)
    created_at = Time()

    class Meta:
        indexes = ((("account", "sender", "id"), False),)


Incoming.add_index(
    SQL("CREATE UNIQUE INDEX incoming_once ON incoming (provider_id, provider, account_id) WHERE provider_id NOT NULL")
)
Incoming.add_index(SQL("CREATE INDEX incoming_reply ON incoming (reply_id) WHERE reply_id NOT NULL"))
Incoming.add_index(
    SQL("CREATE INDEX incoming_refusals ON incoming (account_id, id) WHERE kind = 'refusal' AND seen_at IS NULL")
)


class Receipt(Table):
    """What a provider told about an SMS whose row does not say yet that it was taken; applied when it does."""

    provider = TextField()
    provider_id = TextField()
    message_id = IntegerField(null=True, index=True)  # where the provider told it by an address that names it
    status = TextField()  # sent, delivered, undelivered, failed
    code = TextField(null=True)
    text = TextField(null=True)
    created_at = Time(index=True)

    class Meta:
        indexes = ((("provider_id", "provider", "status"), True),)
