"""Who is told of events, and what they answered."""

from peewee import BlobField, BooleanField, ForeignKeyField, IntegerField, TextField

from appliance.tables.account import Account
from appliance.tables.kinds import Json, Table, Time


class Webhook(Table):
    """An address that gets events as they happen."""

    account = ForeignKeyField(Account, index=True)
    url = TextField()
    events = Json(default=list)
    enabled = BooleanField(default=True)
    secret = BlobField()
    failing_since = Time(null=True)
    last_event_id = IntegerField(default=0)
    created_at = Time()
    updated_at = Time()


class WebhookDelivery(Table):
    """One event on its way to one webhook."""

    webhook = ForeignKeyField(Webhook, on_delete="CASCADE", index=False)
    event_id = IntegerField()
    status = TextField(default="pending")
    attempts = IntegerField(default=0)
    response_status = IntegerField(null=True)
    response_text = TextField(null=True)
    next_attempt_at = Time(null=True)
    created_at = Time()
    updated_at = Time()

    class Meta:
        indexes = ((("webhook", "event_id"), True), (("status", "next_attempt_at"), False))
