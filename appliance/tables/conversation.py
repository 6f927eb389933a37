"""What comes back over SMS: what people write, and what providers tell about what was sent."""

from peewee import SQL, BooleanField, ForeignKeyField, IntegerField, TextField

from appliance.tables.account import Account
from appliance.tables.contact import Contact
from appliance.tables.kinds import Table, Time


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
