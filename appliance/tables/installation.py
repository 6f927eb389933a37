"""This installation."""

from peewee import TextField

from appliance.tables.kinds import Table, Time


class Installation(Table):
    """The one row that binds the database to its key file."""

    key_fingerprint = TextField()  # `tokens.fingerprint`
    created_at = Time()
