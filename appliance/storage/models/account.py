"""Tables of accounts, with their users, API keys, settings, audit log, contacts, consent, segments and lists."""

from peewee import SQL, BlobField, BooleanField, CompositeKey, FloatField, ForeignKeyField, IntegerField, TextField

from appliance.storage.database import Json, Records, Table, Time


class Account(Table):
    """A team with its own contacts, campaigns and settings."""

    name = TextField()
    time_zone = TextField(default="UTC")
    locale = TextField(default="en")
    country_code = TextField(null=True)  # for phone numbers without a country code
    email_from_name = TextField(null=True)
    email_from_email = TextField(null=True)
    email_reply_to = TextField(null=True)
    sms_from = TextField(null=True)
    test_email_recipients = Json(default=list)
    approval_required = BooleanField(default=False)
    approval_by_another = BooleanField(default=False)  # the requester and the last editor may not approve
    block_on_missing_variable = BooleanField(default=False)
    transactional_allowed = BooleanField(default=True)
    sending_stopped = BooleanField(default=False)
    stop_reason = TextField(null=True)
    frequency_cap = Json(null=True)
    sms_quiet_hours = Json(null=True)
    marketing_calendar = Json(null=True)  # when marketing email may be sent; null: at any time
    sms_opt_out_hint = TextField(null=True)
    sms_opt_out_hints = Json(default=dict)  # in other languages, by language tag
    privacy_ip = TextField(default="truncated")
    control_share = FloatField(null=True)  # the share of contacts who get no campaigns, to be measured
    control_seed = IntegerField(null=True)  # the seed that chooses them; set with the first share and never changed
    # For how many days after a click an order counts as its result.
    attribution_days = IntegerField(default=7, constraints=[SQL("DEFAULT 7")])
    utm = Json(null=True)  # the UTM parameters of links in campaigns and flows (`content.designs.utm.Utm`)
    agents_stopped_at = Time(null=True)  # since when all agents are stopped
    password_sign_in = BooleanField(default=True)  # whether a password is enough to sign in (beside OpenID Connect)
    events_since = Time(null=True)  # events from before this time may have been deleted because of their age
    limits = Json(null=True)  # of the operator, by name (`accounts/limits.py`); null: none
    limit_notices = Json(null=True)  # by the name of a limit: the period and the share that owners were told about
    # The base URL of the links and pages for its recipients (`accounts/public_urls.py`); null: `base_url`.
    public_url = TextField(null=True)
    closed_at = Time(null=True)  # since when nobody can sign in and nothing is sent
    created_at = Time()
    updated_at = Time()


class User(Table):
    """A person who can sign in. A row of `TeamMember` for each account says what the person may do there."""

    last_account = ForeignKeyField(Account, index=True)  # the account that was open last: the next sign-in opens it
    email = TextField(unique=True)  # lower-cased
    name = TextField()
    password_hash = TextField()
    otp_secret = TextField(null=True)  # encrypted
    otp_step = IntegerField(null=True)  # the 30-second step of the last accepted code, so that no code is used twice
    otp_codes = Json(default=list)  # hashes of the unused recovery codes
    passkey_count = IntegerField(default=0, constraints=[SQL("DEFAULT 0")])  # how many rows of `passkey` the user has
    theme = TextField(default="system")
    preferences = Json(default=dict)
    last_login_at = Time(null=True)
    created_at = Time()
    updated_at = Time()

    # The following properties need `member`, the row of `TeamMember` with which `accounts/members.py` loads a user.

    @property
    def account_id(self) -> int:
        """The id of the account that the user was loaded with."""
        return int(self.member.account_id)

    @property
    def account(self) -> Account:
        """The account that the user was loaded with."""
        account: Account = self.member.account
        return account

    @property
    def role(self) -> str:
        """The role of the user in the account that the user was loaded with."""
        return str(self.member.role)

    @property
    def disabled_at(self) -> int | None:
        """When the user was disabled in the account that the user was loaded with, in milliseconds; else None."""
        moment: int | None = self.member.disabled_at
        return moment


class TeamMember(Table):
    """A user in an account: the role there, and whether the user is disabled there."""

    user = ForeignKeyField(User, on_delete="CASCADE", index=False)
    account = ForeignKeyField(Account, index=True)
    role = TextField()
    disabled_at = Time(null=True)
    created_at = Time()
    updated_at = Time()

    class Meta:
        indexes = ((("user", "account"), True),)


class Role(Table):
    """A role of an account's own: a named set of scopes. Users and invitations refer to it by its id as a text."""

    account = ForeignKeyField(Account, index=False)
    name = TextField()
    name_key = TextField()  # `normalize_name` of the name, by which names are unique
    scopes = Json(default=list)
    contact_data = TextField(default="full")  # full, masked
    created_at = Time()
    updated_at = Time()

    class Meta:
        indexes = ((("account", "name_key"), True),)


class Invitation(Table):
    """An invitation of an email address to a team; its link is a signature of id and expiry, which is not stored."""

    account = ForeignKeyField(Account)
    email = TextField()  # lower-cased
    role = TextField()
    invited_by = ForeignKeyField(User, on_delete="CASCADE", index=True)
    created_at = Time()
    sent_at = Time()
    expires_at = Time(index=True)

    class Meta:
        indexes = ((("account", "email"), True),)


class ApiKey(Table):
    """An API key, of which only the hash is stored; the key is shown once, when it is created."""

    account = ForeignKeyField(Account, index=True)
    name = TextField()
    key_hash = TextField(unique=True)
    hint = TextField()  # the last characters of the key, so that a person can tell keys apart
    scope = TextField(default="full")
    test = BooleanField(default=False)
    agent = BooleanField(default=False)  # for an agent, which drafts and proposes; never changed
    created_by = ForeignKeyField(User, null=True, on_delete="SET NULL")
    last_used_at = Time(null=True)
    # SMTP submission: how many emails it accepted, when the last one was, and the limit of recipients in an hour (null:
    # that of the setting `submission.recipients_per_hour`), with the time of the last notice that it was reached.
    smtp_count = IntegerField(default=0)
    smtp_last_at = Time(null=True)
    smtp_hourly_limit = IntegerField(null=True)
    smtp_limit_notice_at = Time(null=True)
    revoked_at = Time(null=True)
    created_at = Time()


class AppClient(Table):
    """A connected app that registered itself (RFC 7591); apps with a metadata document have no row."""

    client_id = TextField(unique=True)
    name = TextField()  # as the app calls itself; nobody has verified it
    redirect_uris = Json(default=list)
    created_at = Time(index=True)
    authorized_at = Time(null=True)  # when a user last connected it


class AppGrant(Table):
    """A connected app: the permission that a user gave a program by OAuth 2.1. It acts as an API key of its own.

    The key has the name and the scopes of the app, and nobody has its secret. The grant ends with the key.
    """

    account = ForeignKeyField(Account, index=True)
    user = ForeignKeyField(User, on_delete="CASCADE", index=True)
    api_key = ForeignKeyField(ApiKey, unique=True, on_delete="CASCADE")
    client_id = TextField()
    redirect_host = TextField()  # where the browser was sent back to
    resource = TextField()  # the URL that its tokens are for (RFC 8707)
    created_at = Time()


class AppCode(Table):
    """An authorization code, stored as a hash. It is kept for a day after its use, so that a second use is noticed."""

    code_hash = TextField(unique=True)
    user = ForeignKeyField(User, on_delete="CASCADE", index=True)
    account = ForeignKeyField(Account, null=True, index=True)  # that the user connects the app to
    client_id = TextField()
    client_name = TextField()
    redirect_uri = TextField()
    challenge = TextField()  # of PKCE: base64url of the SHA-256 of the verifier (RFC 7636)
    scope = TextField()
    resource = TextField()
    grant = ForeignKeyField(AppGrant, null=True, on_delete="CASCADE", index=True)  # that its use made
    used_at = Time(null=True)
    expires_at = Time(index=True)


class AppToken(Table):
    """An access or refresh token of a connected app, stored as a hash."""

    token_hash = TextField(unique=True)
    grant = ForeignKeyField(AppGrant, on_delete="CASCADE", index=True)
    kind = TextField()  # access, refresh
    scope = TextField(null=True)  # of an access token with fewer scopes than the app; null: those of the app
    used_at = Time(null=True)  # of a refresh token: when it was exchanged; a second use ends the grant
    created_at = Time()
    expires_at = Time(index=True)


class Setting(Table):
    """A setting that was changed on a settings page; `name` is its dotted name."""

    name = TextField(unique=True)
    value = Json()
    updated_at = Time()


class MailboxGrant(Table):
    """The consent of a mailbox to send email for it. Its refresh token is a setting (`email.google.refresh_token`).

    The row is about the refresh token with `token_hash`; about another one, nothing is known yet.
    """

    provider = TextField(unique=True)  # google, microsoft
    token_hash = TextField()  # hex SHA-256 of the refresh token
    email = TextField(default="")  # the mailbox, if the provider named it
    granted_at = Time()
    refreshed_at = Time()  # when the provider last accepted the refresh token
    expires_at = Time(null=True)  # when the refresh token expires; null if the provider named no end
    failed_at = Time(null=True)
    failure = TextField(null=True)  # why the provider rejects the refresh token, in its words
    warned_at = Time(null=True)  # when the owners were told that it expires soon or is rejected


class Idempotency(Table):
    """The result of a request with an idempotency key, for a repetition of the request (docs/decisions.md#4)."""

    account = ForeignKeyField(Account, index=False)
    path = TextField()
    key = TextField()
    payload_hash = TextField()  # hash of the first request
    resource_id = IntegerField()
    created_at = Time(index=True)

    class Meta:
        indexes = ((("account", "path", "key"), True),)


class Audit(Table):
    """An entry of the audit log: which user or API key (`actor`) did what (`action`) to which object (`subject`)."""

    account = ForeignKeyField(Account, null=True, index=False)
    actor = TextField()
    action = TextField()
    subject = TextField(null=True)
    data = Json(default=dict)
    ip = TextField(null=True)
    created_at = Time()

    class Meta:
        indexes = ((("account", "created_at", "id"), False),)


# Bulk actions and the batches of their contacts:


class BulkAction(Table):
    """An action on many contacts, done in batches. The row is kept for a day after the end, for undo."""

    account = ForeignKeyField(Account, index=True)
    user_id = IntegerField()
    action = TextField()  # list_add, list_remove, tag_add, tag_remove, unsubscribe, delete
    argument = Json(default=dict)  # `contact_list_id` or `tag`
    evidence = Json(default=dict)  # the evidence to store in consent rows
    state = TextField(default="working")  # working, done, failed
    contact_count = IntegerField()  # the number of contacts that the action applies to
    changed = IntegerField(default=0)
    skipped = Json(default=dict)  # the number of unchanged contacts by reason
    undoes_id = IntegerField(null=True)  # the action that this one undoes
    undone_id = IntegerField(null=True)  # the action that undoes this one
    ended_at = Time(null=True)
    created_at = Time()
    updated_at = Time()


# The index is partial, because few actions are in progress at a time.
BulkAction.add_index(SQL("CREATE INDEX bulk_action_working ON bulk_action (id) WHERE state = 'working'"))


class BulkActionPart(Table):
    """A batch of a bulk action; `contact_ids` are its contacts, or, once it is done, only the changed contacts."""

    bulk_action = ForeignKeyField(BulkAction, on_delete="CASCADE", index=False)
    contact_ids = Json(default=list)
    done = BooleanField(default=False)

    class Meta:
        indexes = ((("bulk_action", "done"), False),)


# The installation:


class Installation(Table):
    """The only row of this table stores which key file the database belongs to."""

    key_fingerprint = TextField()  # `crypto.key_fingerprint`
    created_at = Time()


# Restored backups:


class Restoration(Table):
    """A restore of a backup that was created at `taken_at`.

    Messages that were queued when the backup was created may have been sent before the restore, so a person must
    decide about them.
    """

    taken_at = Time()
    restored_at = Time()
    taken_by = TextField()  # the version of the program that created the backup
    restored_by = TextField()  # the version of the program that restored it
    replayed = Json(default=dict)
    paused = Json(default=list)  # ids of the flows that were live


class CopyRun(Table):
    """An attempt to copy a backup to another machine (`copy`), or to restore the newest copy for a test (`proof`)."""

    kind = TextField()  # copy, proof
    state = TextField()  # running, succeeded, failed, interrupted
    requested_by = TextField(null=True)  # the user or API key that asked for it; null: the schedule
    copy = TextField(null=True)  # the name of the copy that was made or tested
    taken_at = Time(null=True)  # the time of the data in the copy
    size = IntegerField(null=True)  # of the copy, in bytes
    error_code = TextField(null=True)
    error = TextField(null=True)
    details = Json(default=dict)
    started_at = Time()
    ended_at = Time(null=True)

    class Meta:
        """Index the runs by kind, for the newest ones."""

        indexes = ((("kind", "state", "id"), False),)


class Contact(Table):
    """A person with channels, names, custom data and lists."""

    account = ForeignKeyField(Account, index=False)
    uuid = TextField(unique=True)
    first_name = TextField(null=True)
    last_name = TextField(null=True)
    source = TextField(null=True)
    country_code = TextField(null=True)
    language = TextField(null=True)  # a language tag such as `pt-BR` (`i18n.normalize_language_tag`)
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


# The letters by which names of contacts are sorted, each with the Latin letters that count as it. The index
# is stored with this table: a change needs a migration that recreates it. docs/decisions.md#21-order-of-names
_SORTED_AS = {
    "a": "ÀÁÂÃÄÅĀĂĄÆàáâãäåāăąæ", "c": "ÇĆĈĊČçćĉċč", "d": "ÐĎĐðďđ", "e": "ÈÉÊËĒĔĖĘĚèéêëēĕėęě", "g": "ĜĞĠĢĝğġģ",
    "h": "ĤĦĥħ", "i": "ÌÍÎÏĨĪĬĮİĲìíîïĩīĭįıĳ", "j": "Ĵĵ", "k": "Ķķ", "l": "ĹĻĽŁĺļľł", "n": "ÑŃŅŇŊñńņňŋ",
    "o": "ÒÓÔÕÖØŌŎŐŒòóôõöøōŏőœ", "r": "ŔŖŘŕŗř", "s": "ŚŜŞŠȘẞśŝşšșß", "t": "ŢŤŦȚÞţťŧțþ", "u": "ÙÚÛÜŨŪŬŮŰŲùúûüũūŭůűų",
    "w": "Ŵŵ", "y": "ÝŶŸýÿŷ", "z": "ŹŻŽźżž",
}  # fmt: skip
# How many letters of a first name and of a last name lose their accents.
_MAX_PLAIN_LETTERS = 8


def _name_order() -> str:
    """Return the SQL expression by which contacts are sorted by name; contacts without a name come last.

    Each letter is looked up by its position. Nested calls of replace() would be shorter, but the parser of SQLite
    before 3.46, with which Debian 12 has a command line, reads at most 24 of them.
    """
    accented = "".join(_SORTED_AS.values())
    plain = "".join(letter * len(variants) for letter, variants in _SORTED_AS.items())

    def plain_name(column: str) -> str:
        letters = [f"substr({column}, {position}, 1)" for position in range(1, _MAX_PLAIN_LETTERS + 1)]
        parts = [
            f"coalesce(nullif(substr('{plain}', instr('{accented}', nullif({letter}, '')), 1), ''), {letter}, '')"
            for letter in letters
        ]
        return " || ".join([*parts, f"coalesce(substr({column}, {_MAX_PLAIN_LETTERS + 1}), '')"])

    name = "trim(coalesce(first_name, '') || ' ' || coalesce(last_name, ''))"
    # Most names have only ASCII letters, for which nothing is looked up.
    plain_case = f"trim({plain_name('first_name')} || ' ' || {plain_name('last_name')})"
    cases = f"CASE WHEN {name} GLOB '*[^ -~]*' THEN {plain_case} ELSE {name} END"
    return f"coalesce(nullif({cases}, ''), char(1114111))"


NAME_ORDER = _name_order()
CONTACT_NAME_INDEX = f"CREATE INDEX contact_name_order ON contact (account_id, {NAME_ORDER} COLLATE NOCASE, id)"
Contact.add_index(SQL(CONTACT_NAME_INDEX))


class Channel(Table):
    """An email address or phone number of a contact; its state is derived from consent rows and suppressions."""

    account = ForeignKeyField(Account, index=False)
    contact = ForeignKeyField(Contact, on_delete="CASCADE", index=True)
    kind = TextField()  # email, phone
    value = TextField()  # the address as shown and sent to
    key = TextField()  # the normal form, unique in an account
    subscribed = BooleanField(default=False)
    verified_at = Time(null=True)
    opt_in_at = Time(null=True)
    opt_out_at = Time(null=True)
    opted_out_by = TextField(null=True)  # recipient, operator
    # When another opt-out was recorded for an address that was opted out already. If this is not before `updated_at`,
    # the undo of an import keeps the opt-out.
    opt_out_repeated_at = Time(null=True)
    suppression = TextField(null=True)  # the most severe reason that applies, updated by audience/suppressions.py
    sent_count = IntegerField(default=0)
    fail_count = IntegerField(default=0)
    opt_out_hint_sent_at = Time(null=True)  # when an SMS last contained the opt-out hint
    data = Json(default=dict)
    created_at = Time()
    updated_at = Time()

    class Meta:
        indexes = ((("account", "kind", "key"), True),)


# Suppressed addresses are counted without reading all addresses; the index is partial, because few are suppressed.
Channel.add_index(
    SQL("CREATE INDEX channel_suppressed ON channel (account_id, kind, suppression) WHERE suppression NOT NULL")
)


class Consent(Table):
    """Append-only evidence of consent: who agreed or refused, how, when, from which IP address, and to which text."""

    account = ForeignKeyField(Account, index=False)
    contact = ForeignKeyField(Contact, null=True, on_delete="SET NULL", index=True)
    kind = TextField()
    address_hash = BlobField()
    # opt_in, opt_out, requested, confirmed, suppressed, lifted, list_joined, list_left, tracking, erase_requested,
    # import_undone
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


# Evidence is looked up by its contact, or by its address hash once the contact is gone. An index of all hashes would be
# most of what an import writes, because hashes are inserted in random order.
Consent.add_index(
    SQL("CREATE INDEX consent_without_contact ON consent (account_id, address_hash) WHERE contact_id IS NULL")
)
# Consent that was given or withdrawn through a link in a message, by message.
Consent.add_index(
    SQL(
        "CREATE INDEX consent_of_message ON consent (json_extract(data, '$.message_id')) "
        "WHERE json_extract(data, '$.message_id') NOT NULL"
    )
)


class Suppression(Table):
    """An address that must not receive messages, whether or not it belongs to a contact."""

    account = ForeignKeyField(Account, index=False)
    kind = TextField()
    address_hash = BlobField()
    address = TextField(null=True)  # null once erased
    reason = TextField()
    source = TextField(null=True)
    diagnostic = TextField(null=True)
    note = TextField(null=True)
    created_at = Time()
    # When the address was first suppressed once more; if set, the undo of an import keeps the suppression.
    repeated_at = Time(null=True)
    expires_at = Time(null=True)

    class Meta:
        indexes = ((("account", "kind", "address_hash", "reason"), True), (("account", "created_at"), False))


Suppression.add_index(SQL("CREATE INDEX suppression_expires ON suppression (expires_at) WHERE expires_at NOT NULL"))


class OptOut(Table):
    """An opt-out of an address, of which only the keyed hash is stored; the row is kept when the contact is deleted."""

    account = ForeignKeyField(Account, index=False)
    kind = TextField()
    address_hash = BlobField()
    by = TextField()
    created_at = Time()

    class Meta:
        indexes = ((("account", "kind", "address_hash"), True),)


class Segment(Table):
    """A named set of filters; the contacts of the segment are those that match the filters."""

    account = ForeignKeyField(Account, index=True)
    name = TextField()
    filters = Json(default=list)
    created_at = Time()
    updated_at = Time()


class ContactList(Table):
    """A list of contacts, or the mirror of a segment."""

    account = ForeignKeyField(Account, index=False)
    name = TextField()
    name_key = TextField()  # `normalize_name` of the name, by which names are unique
    segment = ForeignKeyField(Segment, null=True, index=True)
    contacts_count = IntegerField(default=0)
    stale = BooleanField(default=False)
    last_populated_at = Time(null=True)
    seen_event_id = IntegerField(default=0)  # for a mirror: the newest event when the list was last populated
    double_opt_in = BooleanField(default=False)
    public = BooleanField(default=False)
    created_at = Time()
    updated_at = Time()

    class Meta:
        indexes = ((("account", "name_key"), True),)


class Membership(Table):
    """A contact in a list."""

    id = None
    contact_list = ForeignKeyField(ContactList, on_delete="CASCADE", index=False)
    contact = ForeignKeyField(Contact, on_delete="CASCADE", index=True)
    created_at = Time()

    class Meta:
        primary_key = CompositeKey("contact_list", "contact")
        without_rowid = True


class ListOptOut(Table):
    """The opt-out of a contact from a list, by the contact; only the contact can join the list again."""

    id = None
    contact_list = ForeignKeyField(ContactList, on_delete="CASCADE", index=False)
    contact = ForeignKeyField(Contact, on_delete="CASCADE", index=True)
    created_at = Time()

    class Meta:
        primary_key = CompositeKey("contact_list", "contact")
        without_rowid = True


# The full-text index of contacts; its rowid is the contact's id (docs/decisions.md#9, `search`). By default FTS5
# rewrites a part of the index as soon as a tenth of its entries were deleted, which took 0.45 s inside a commit with
# 100,000 contacts. With `deletemerge` 0, deleted entries are removed when parts are merged for other reasons.
SEARCH_SQL = (
    "CREATE VIRTUAL TABLE contact_search USING fts5(names, email, phone, content='', contentless_delete=1, "
    "prefix='2 3', tokenize='unicode61 remove_diacritics 2')",
    "INSERT INTO contact_search (contact_search, rank) VALUES ('deletemerge', 0)",
)


ACCOUNTS: Records[Account] = Records(Account)
CONTACTS: Records[Contact] = Records(Contact)
CHANNELS: Records[Channel] = Records(Channel)
