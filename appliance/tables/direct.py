"""What delivery to the recipients' own servers has to remember."""

from peewee import CompositeKey, IntegerField, TextField

from appliance.tables.kinds import Json, Table, Time


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
