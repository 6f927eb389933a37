"""How users sign in: passkeys, devices, OpenID Connect providers and identities, and sessions."""

from peewee import BlobField, BooleanField, ForeignKeyField, IntegerField, TextField

from appliance.storage.database import Json, Table, Time
from appliance.storage.models.account import Account, User


class Passkey(Table):
    """A passkey of a user: the public key of a WebAuthn credential (docs/decisions.md#36)."""

    user = ForeignKeyField(User, on_delete="CASCADE", index=True)
    credential_id = BlobField(unique=True)
    public_key = BlobField()  # COSE_Key (RFC 9052, section 7)
    sign_count = IntegerField()  # of the last sign-in; 0 for passkeys that do not count
    host = TextField()  # the host name that the passkey was created for (`rp.id`); it works nowhere else
    name = TextField()
    transports = Json(default=list)  # how browsers reach it: usb, nfc, ble, hybrid, internal
    is_synced = BooleanField()  # whether its provider may copy it to other devices (BE, never changes)
    is_backed_up = BooleanField()  # whether it was copied when it was last used (BS)
    created_at = Time()
    last_used_at = Time(null=True)


class Device(Table):
    """A browser, or a program, from which a user has signed in. A browser has a cookie, stored as a hash."""

    user = ForeignKeyField(User, on_delete="CASCADE", index=False)
    token_hash = TextField()  # of the cookie; for a program, of its User-Agent header and its network
    name = TextField(null=True)  # as the user named it; null: as its User-Agent header says
    created_at = Time()
    last_seen_at = Time(index=True)  # the last sign-in

    class Meta:
        indexes = ((("user", "token_hash"), True),)


class SignInProvider(Table):
    """An OpenID Connect provider of an account, whose people may sign in to Campanero with it."""

    account = ForeignKeyField(Account, on_delete="CASCADE", index=True)
    key = TextField(unique=True)  # in its URLs: each provider has a redirect URI of its own
    name = TextField()
    issuer = TextField()  # never changed, because an identity belongs to its issuer
    client_id = TextField()
    client_secret = TextField(null=True)  # encrypted; null for a public client
    domains = Json(default=list)  # of verified addresses whose owners may join without an invitation
    role = TextField(default="viewer")  # the role of users who join without an invitation
    trust_mfa = BooleanField(default=False)  # whether a second factor that the provider checked is enough
    enabled = BooleanField(default=True)
    created_at = Time()
    updated_at = Time()


class Identity(Table):
    """A person at an OpenID Connect provider who signs in as a user: the issuer and the subject, not the address."""

    provider = ForeignKeyField(SignInProvider, on_delete="CASCADE")
    issuer = TextField()  # of a tenant, if the provider has many
    subject = TextField()
    user = ForeignKeyField(User, on_delete="CASCADE", index=True)
    email = TextField(default="")  # as the provider named it last; only shown
    created_at = Time()
    last_used_at = Time(null=True)

    class Meta:
        indexes = ((("provider", "issuer", "subject"), True),)


class Session(Table):
    """A session of a browser (by cookie) or a program (by JWT); its secret is stored as a hash."""

    token_hash = TextField(unique=True)
    kind = TextField(default="browser")  # browser (the secret is accepted as a cookie only) or token (as a JWT only)
    user = ForeignKeyField(User, backref="sessions", on_delete="CASCADE", index=True)
    account = ForeignKeyField(Account, null=True, index=True)  # that is open; of a token, never changed
    ip = TextField(null=True)  # at sign-in
    last_ip = TextField(null=True)  # of the last use; null until it is used again
    user_agent = TextField(null=True)
    method = TextField(null=True)  # how the user signed in (`sessions.Method`); null for older sessions
    device = ForeignKeyField(Device, null=True, on_delete="SET NULL", index=True)
    created_at = Time()
    last_seen_at = Time()
    expires_at = Time(index=True)
    # The identity with which the user signed in; its deletion ends the session. Null: the user signed in another way.
    identity = ForeignKeyField(Identity, null=True, on_delete="CASCADE", index=True)
