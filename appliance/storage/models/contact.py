"""People, their addresses, what they agreed to, and the groups they are in."""

from peewee import SQL, BlobField, BooleanField, CompositeKey, ForeignKeyField, IntegerField, TextField

from appliance.storage.models.account import Account
from appliance.storage.models.kinds import Json, Table, Time


class Contact(Table):
    """A person."""

    account = ForeignKeyField(Account, index=False)
    uuid = TextField(unique=True)
    first_name = TextField(null=True)
    last_name = TextField(null=True)
    source = TextField(null=True)
    country_code = TextField(null=True)
    data = Json(default=dict)
    tracking = TextField(default="full")
    email_sent_count = IntegerField(default=0)
    email_open_count = IntegerField(default=0)
    email_click_count = IntegerField(default=0)
    email_soft_bounce_count = IntegerField(default=0)
    sms_sent_count = IntegerField(default=0)
    email_last_sent_at = Time(null=True)
    email_last_opened_at = Time(null=True)
    email_last_clicked_at = Time(null=True)
    last_interacted_at = Time(null=True)
    created_at = Time()
    updated_at = Time()

    class Meta:
        indexes = ((("account", "created_at", "id"), False), (("account", "updated_at"), False))


# In the order of a list by name, who has none last (`contacts/paging.py`)
NAME = "coalesce(nullif(trim(coalesce(first_name, '') || ' ' || coalesce(last_name, '')), ''), char(1114111))"
Contact.add_index(SQL(f"CREATE INDEX contact_named ON contact (account_id, {NAME} COLLATE NOCASE, id)"))


class Channel(Table):
    """An address of a person on one channel; its state follows from the consent rows and suppressions."""

    account = ForeignKeyField(Account, index=False)
    contact = ForeignKeyField(Contact, on_delete="CASCADE", index=True)
    kind = TextField()  # email, phone
    value = TextField()  # as shown and used
    key = TextField()  # its one normal form, unique per account
    subscribed = BooleanField(default=False)
    verified_at = Time(null=True)
    opt_in_at = Time(null=True)
    opt_out_at = Time(null=True)
    opted_out_by = TextField(null=True)  # recipient, operator
    suppression = TextField(null=True)  # the gravest reason now in force, kept by contacts/suppress.py
    sent_count = IntegerField(default=0)
    fail_count = IntegerField(default=0)
    hinted_at = Time(null=True)  # when an SMS last said how to opt out
    data = Json(default=dict)
    created_at = Time()
    updated_at = Time()

    class Meta:
        indexes = ((("account", "kind", "key"), True),)


# Few are suppressed: found without reading everybody's addresses
Channel.add_index(
    SQL("CREATE INDEX channel_suppressed ON channel (account_id, kind, suppression) WHERE suppression NOT NULL")
)


class Consent(Table):
    """Evidence, only ever appended: who agreed or refused, how, when, from where and to which words."""

    account = ForeignKeyField(Account, index=False)
    contact = ForeignKeyField(Contact, null=True, on_delete="SET NULL", index=True)
    kind = TextField()
    address_hash = BlobField()
    # opt_in, opt_out, requested, confirmed, suppressed, lifted, list_joined, list_left, tracking, erase_requested
    act = TextField()
    by = TextField()  # recipient, operator, service
    source = TextField()  # api, ui, import, link, one_click, form, keyword ...
    actor = TextField(null=True)
    list_id = IntegerField(null=True)
    ip = TextField(null=True)
    user_agent = TextField(null=True)
    text = TextField(null=True)
    data = Json(default=dict)
    created_at = Time()


# Evidence is found by its contact, and by its address once it has none: hashes come in no order, and an index of all
# of them would be most of what an import writes
Consent.add_index(SQL("CREATE INDEX consent_of_nobody ON consent (account_id, address_hash) WHERE contact_id IS NULL"))
# What people did by the links of a message
Consent.add_index(
    SQL(
        "CREATE INDEX consent_of_message ON consent (json_extract(data, '$.message_id')) "
        "WHERE json_extract(data, '$.message_id') NOT NULL"
    )
)


class Suppression(Table):
    """An address that must not be written to, whoever has it."""

    account = ForeignKeyField(Account, index=False)
    kind = TextField()
    address_hash = BlobField()
    address = TextField(null=True)  # null once erased
    reason = TextField()
    source = TextField(null=True)
    diagnostic = TextField(null=True)
    note = TextField(null=True)
    created_at = Time()
    expires_at = Time(null=True)

    class Meta:
        indexes = ((("account", "kind", "address_hash", "reason"), True), (("account", "created_at"), False))


Suppression.add_index(SQL("CREATE INDEX suppression_expires ON suppression (expires_at) WHERE expires_at NOT NULL"))


class OptOut(Table):
    """An opt-out that outlives its contact, by the keyed hash of the address."""

    account = ForeignKeyField(Account, index=False)
    kind = TextField()
    address_hash = BlobField()
    by = TextField()
    created_at = Time()

    class Meta:
        indexes = ((("account", "kind", "address_hash"), True),)


class Segment(Table):
    """A group that follows from rules."""

    account = ForeignKeyField(Account, index=True)
    name = TextField()
    filters = Json(default=list)
    created_at = Time()
    updated_at = Time()


class ContactList(Table):
    """A group that people are put into by name, or the mirror of a segment."""

    account = ForeignKeyField(Account, index=False)
    name = TextField()
    name_key = TextField()  # unique without case
    segment = ForeignKeyField(Segment, null=True, index=True)
    contacts_count = IntegerField(default=0)
    stale = BooleanField(default=False)
    last_populated_at = Time(null=True)
    seen_event_id = IntegerField(default=0)  # of a mirror: the newest event when it was populated
    double_opt_in = BooleanField(default=False)
    public = BooleanField(default=False)
    created_at = Time()
    updated_at = Time()

    class Meta:
        indexes = ((("account", "name_key"), True),)


class Membership(Table):
    """A person in a list."""

    id = None
    contact_list = ForeignKeyField(ContactList, on_delete="CASCADE", index=False)
    contact = ForeignKeyField(Contact, on_delete="CASCADE", index=True)
    created_at = Time()

    class Meta:
        primary_key = CompositeKey("contact_list", "contact")
        without_rowid = True


class ListRefusal(Table):
    """A list that a person left by their own act; no write but their own brings them back."""

    id = None
    contact_list = ForeignKeyField(ContactList, on_delete="CASCADE", index=False)
    contact = ForeignKeyField(Contact, on_delete="CASCADE", index=True)
    created_at = Time()

    class Meta:
        primary_key = CompositeKey("contact_list", "contact")
        without_rowid = True


# Words that find a contact; rowid is the contact's id (docs/decisions.md#9, `search`).
SEARCH = SQL(
    "CREATE VIRTUAL TABLE contact_search USING fts5(names, email, phone, content='', contentless_delete=1, "
    "prefix='2 3', tokenize='unicode61 remove_diacritics 2')"
)
# What was changed leaves the index when its parts are merged anyway. Else FTS5 merges a whole part as soon as a
# tenth of it was changed: with 100,000 contacts that took 0.45 s, inside somebody's commit.
SEARCH_RULE = SQL("INSERT INTO contact_search (contact_search, rank) VALUES ('deletemerge', 0)")
