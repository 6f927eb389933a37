"""Accounts and who may act in them."""

from peewee import SQL, BooleanField, ForeignKeyField, IntegerField, TextField

from appliance.storage.models.kinds import Json, Table, Time


class Account(Table):
    """One team with its own people, mail and books."""

    name = TextField()
    time_zone = TextField(default="UTC")
    locale = TextField(default="en")
    country_code = TextField(null=True)  # of phone numbers that are written without one
    email_from_name = TextField(null=True)
    email_from_email = TextField(null=True)
    email_reply_to = TextField(null=True)
    sms_from = TextField(null=True)
    test_email_recipients = Json(default=list)
    approval_required = BooleanField(default=False)
    approval_by_another = BooleanField(default=False)  # nobody approves of what they wrote last
    block_on_missing_variable = BooleanField(default=False)
    transactional_allowed = BooleanField(default=True)
    sending_stopped = BooleanField(default=False)
    stop_reason = TextField(null=True)
    frequency_cap = Json(null=True)
    sms_quiet_hours = Json(null=True)
    sms_opt_out_hint = TextField(null=True)
    privacy_ip = TextField(default="truncated")
    events_since = Time(null=True)  # events from before may have been deleted for their age
    created_at = Time()
    updated_at = Time()


class User(Table):
    """A person who signs in."""

    account = ForeignKeyField(Account, backref="users", index=True)
    email = TextField(unique=True)  # lower-cased
    name = TextField()
    role = TextField(default="owner")
    password_hash = TextField()
    otp_secret = TextField(null=True)  # sealed
    otp_step = IntegerField(null=True)  # the half minute whose code came last: none counts twice
    otp_codes = Json(default=list)  # what is left of the recovery codes, as digests
    theme = TextField(default="system")
    preferences = Json(default=dict)
    disabled_at = Time(null=True)
    last_login_at = Time(null=True)
    created_at = Time()
    updated_at = Time()


class Session(Table):
    """A sign-in that holds: of a browser by its cookie, of a program by its JWT; its secret is stored as a digest."""

    token_digest = TextField(unique=True)
    kind = TextField(default="browser")  # or `token`: neither opens the door of the other
    user = ForeignKeyField(User, backref="sessions", on_delete="CASCADE", index=True)
    ip = TextField(null=True)
    user_agent = TextField(null=True)
    created_at = Time()
    last_seen_at = Time()
    expires_at = Time(index=True)


class ApiKey(Table):
    """A key for scripts; shown once, stored as its digest."""

    account = ForeignKeyField(Account, index=True)
    name = TextField()
    digest = TextField(unique=True)
    hint = TextField()  # the last characters, so that a person can tell keys apart
    scope = TextField(default="full")
    test = BooleanField(default=False)
    created_by = ForeignKeyField(User, null=True, on_delete="SET NULL")
    last_used_at = Time(null=True)
    revoked_at = Time(null=True)
    created_at = Time()


class Setting(Table):
    """A setting changed on a page, by its dotted name."""

    name = TextField(unique=True)
    value = Json()
    updated_at = Time()


class Idempotency(Table):
    """What a repeated request gets back (docs/decisions.md#4)."""

    account = ForeignKeyField(Account, index=False)
    path = TextField()
    key = TextField()
    payload = TextField()  # digest of the first request
    resource_id = IntegerField()
    created_at = Time(index=True)

    class Meta:
        indexes = ((("account", "path", "key"), True),)


class Audit(Table):
    """What people and keys did to settings, keys and consent."""

    account = ForeignKeyField(Account, null=True, index=False)
    actor = TextField()
    action = TextField()
    subject = TextField(null=True)
    data = Json(default=dict)
    ip = TextField(null=True)
    created_at = Time()

    class Meta:
        indexes = ((("account", "created_at", "id"), False),)


# What is done with many people at once: the act, and the people in parts, as far as it has come.


class CrowdAct(Table):
    """One act for many people, done in parts; kept for a day after its end, so that it can be undone."""

    account = ForeignKeyField(Account, index=True)
    user_id = IntegerField()
    act = TextField()  # list_add, list_remove, tag_add, tag_remove, unsubscribe, delete
    argument = Json(default=dict)  # what it needs: `contact_list_id`, `tag`
    evidence = Json(default=dict)  # how it came about, for consent rows
    state = TextField(default="working")  # working, done, failed
    number = IntegerField()  # how many people it is for
    changed = IntegerField(default=0)
    skipped = Json(default=dict)  # how many were left as they are, by reason
    undoes_id = IntegerField(null=True)  # the act that it takes back
    undone_id = IntegerField(null=True)  # the act that takes it back
    ended_at = Time(null=True)
    created_at = Time()
    updated_at = Time()


# Few are ever under way
CrowdAct.add_index(SQL("CREATE INDEX crowd_act_working ON crowd_act (id) WHERE state = 'working'"))


class CrowdPart(Table):
    """Some of the people of an act: whom it is for, and once it is done those who were changed."""

    act = ForeignKeyField(CrowdAct, on_delete="CASCADE", index=False)
    contact_ids = Json(default=list)
    done = BooleanField(default=False)

    class Meta:
        indexes = ((("act", "done"), False),)


# This installation.


class Installation(Table):
    """The one row that binds the database to its key file."""

    key_fingerprint = TextField()  # `tokens.fingerprint`
    created_at = Time()


# Backups that were put in the place of what was there.


class Restoration(Table):
    """One of them: what is older than `taken_at` may have gone out since, and only a person can say."""

    taken_at = Time()
    restored_at = Time()
    taken_by = TextField()  # versions of the program
    restored_by = TextField()
    replayed = Json(default=dict)
    paused = Json(default=list)  # flows that were live
