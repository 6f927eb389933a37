"""What came back about messages: what speaks against an address, and which reports were heard."""

from peewee import SQL, BlobField, CompositeKey, ForeignKeyField, IntegerField, TextField

from appliance.tables.account import Account
from appliance.tables.kinds import Table, Time
from appliance.tables.message import Message


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
