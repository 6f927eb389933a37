"""What SMS have cost."""

from peewee import CompositeKey, ForeignKeyField, IntegerField

from appliance.tables.account import Account
from appliance.tables.kinds import Table


class SmsDay(Table):
    """How many paid parts an account used on a day."""

    account = ForeignKeyField(Account, index=False)
    day = IntegerField()  # of the account's time zone, since the first of the year 1
    parts = IntegerField()

    class Meta:
        primary_key = CompositeKey("account", "day")
