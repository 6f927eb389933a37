"""Tables of what comes back for sent messages: bounces, receipts, incoming SMS, and processed notifications."""

from peewee import SQL, BlobField, BooleanField, CompositeKey, ForeignKeyField, IntegerField, TextField

from appliance.storage.database import Table, Time
from appliance.storage.models.account import Account, Contact
from appliance.storage.models.message import Message


class Bounce(Table):
    """The rejection or bounce of a message; the address is stored as its keyed hash."""

    account = ForeignKeyField(Account, index=False)
    message = ForeignKeyField(Message, unique=True, on_delete="CASCADE")
    campaign_id = IntegerField(null=True)
    address_hash = BlobField()
    kind = TextField()  # the name of the bounce class (sending/delivery/bounce_classes.py)
    created_at = Time()

    class Meta:
        indexes = ((("account", "address_hash", "created_at"), False),)


# The bounces of a campaign that say that receivers reject its sender; too many of them pause the campaign.
Bounce.add_index(
    SQL(
        "CREATE INDEX bounce_rejected_sender ON bounce (campaign_id, kind) "
        "WHERE kind IN ('authentication', 'unregistered', 'filtered')"
    )
)


class ProcessedNotification(Table):
    """A notification from a provider that was processed; its id is stored so that a repetition is not counted again."""

    id = None
    source = TextField()
    key = TextField()
    created_at = Time(index=True)

    class Meta:
        primary_key = CompositeKey("source", "key")
        without_rowid = True


# Incoming SMS, and delivery reports of SMS providers:


class Incoming(Table):
    """An incoming SMS, with one row for each account that it concerns; an unknown number creates no contact."""

    account = ForeignKeyField(Account, index=True)
    contact = ForeignKeyField(Contact, null=True, on_delete="SET NULL", index=True)
    provider = TextField()
    provider_id = TextField(null=True)  # the id that the provider gave it, by which a repeated delivery is ignored
    sender = TextField(null=True)  # the number that sent it; null once it is erased
    recipient = TextField()  # the number that it was sent to
    body = TextField(null=True)
    kind = TextField()  # message, keyword, stop, start, help, refusal (an opt-out in free text, for a person to review)
    keyword = TextField(null=True)
    answered_id = IntegerField(null=True)  # the id of the last message to the number before; the SMS may answer it
    reply_id = IntegerField(null=True)  # the id of the message in reply, which is sent regardless of consent
    opted_out = BooleanField(default=False)  # whether the SMS opted out the number that sent it
    seen_at = Time(null=True)  # when a person reviewed an opt-out in free text
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
    """A provider's delivery report about an SMS whose acceptance is not stored yet, kept until it can be applied."""

    provider = TextField()
    provider_id = TextField()
    message_id = IntegerField(
        null=True, index=True
    )  # set if the provider reported to a callback URL that names the message
    status = TextField()  # sent, delivered, undelivered, failed
    code = TextField(null=True)
    text = TextField(null=True)
    created_at = Time(index=True)

    class Meta:
        indexes = ((("provider_id", "provider", "status"), True),)
