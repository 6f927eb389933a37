"""Who is told of events, and what they answered."""

from peewee import SQL, BlobField, BooleanField, ForeignKeyField, IntegerField, TextField

from appliance.tables.account import Account
from appliance.tables.kinds import Json, Table, Time


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
