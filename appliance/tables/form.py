"""Sign-up forms, and what people asked for that the owner of the address has yet to confirm."""

from peewee import SQL, BooleanField, ForeignKeyField, IntegerField, TextField

from appliance.tables.account import Account
from appliance.tables.kinds import Json, Table, Time


class Form(Table):
    """A form through which people sign themselves up."""

    account = ForeignKeyField(Account, index=False)
    name = TextField()
    list_ids = Json(default=list)
    origins = Json(default=list)  # whose pages may read the answer
    fields = Json(default=list)
    double_opt_in = BooleanField(default=True)
    redirect_url = TextField(null=True)
    consent_text = TextField(null=True)
    public_key = TextField(unique=True)
    submissions_count = IntegerField(default=0)
    confirmed_count = IntegerField(default=0)
    created_at = Time()
    updated_at = Time()

    class Meta:
        indexes = ((("account", "created_at", "id"), False),)


class Confirmation(Table):
    """What was asked for in somebody's name, waiting for their own word; kept for 30 days."""

    account = ForeignKeyField(Account, index=False)
    form = ForeignKeyField(Form, null=True, on_delete="SET NULL", index=True)
    purpose = TextField()  # opt_in, erase
    kind = TextField()
    value = TextField(null=True)  # the address as typed; null once it is erased
    key = TextField(null=True)  # its normal form
    person = Json(default=dict)  # what was typed beside it; empty once it is confirmed
    list_ids = Json(default=list)
    ip = TextField(null=True)
    user_agent = TextField(null=True)
    text = TextField(null=True)  # the words that were agreed to
    message_id = IntegerField(null=True)  # the mail that asks
    mailed_at = Time(null=True)
    confirmed_at = Time(null=True)
    created_at = Time(index=True)

    class Meta:
        indexes = ((("kind", "key"), False),)


Confirmation.add_index(SQL("CREATE INDEX confirmation_message ON confirmation (message_id) WHERE message_id NOT NULL"))
