"""API keys and their scopes, and the scopes of each role (docs/decisions.md#2).

A key is shown once, when it is created; only its hash is stored. Viewers read. Authors also write contacts, templates,
events, campaigns and flows. Editors also send. Owners and admins may do everything else: change the account and its
domains, approve, manage keys and users, and read the audit log; but only owners manage owners. An account can also have
its own roles (`accounts/roles.py`).
"""

from collections.abc import Iterable
from functools import cache
from typing import Annotated, NamedTuple

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.accounts import audit
from appliance.accounts.audit import Actor
from appliance.core import clock, crypto
from appliance.core.errors import Faults, Invalid, NotFound
from appliance.core.i18n import gettext
from appliance.core.validation import Name, PageQuery
from appliance.settings import config
from appliance.storage.database import Page, fetch_one, normalize_name, paginate, rows, run
from appliance.storage.models import Account, ApiKey
from appliance.storage.transactions import after_commit, require_write_transaction

LIVE_PREFIX, TEST_PREFIX, PUBLIC_PREFIX = "camp_live_", "camp_test_", "camp_pub_"

SCOPES = frozenset(
    [f"{area}:{act}" for area in ("contacts", "templates", "events", "domains", "account", "flows")
     for act in ("read", "write")]
    + [f"campaigns:{act}" for act in ("read", "write", "send", "approve")]
    + ["messages:read", "messages:send"]
)  # fmt: skip

# The scopes that only keys of agents have: segments of the audience, which `contacts:write` includes for others, and
# proposals, which only agents make.
AGENT_WRITE_SCOPES = frozenset(("segments:write", "proposals:write"))
# All scopes that the key of an agent may have (docs/decisions.md#25). They read, draft and propose. An endpoint is open
# to agents only if it says so (`agent_scope` of its route).
AGENT_SCOPES = (
    frozenset(name for name in SCOPES if name.endswith(":read"))
    | {"campaigns:write", "flows:write", "templates:write"}
    | AGENT_WRITE_SCOPES
)

_MAX_ROLE_DIGITS = 18
# The largest limit of SMTP recipients within an hour.
MAX_HOURLY_LIMIT = 1_000_000_000
_SCOPE = f" *({'|'.join(['full', 'read', 'send', 'draft', *sorted(SCOPES | AGENT_WRITE_SCOPES)])}) *"
_SCOPE_PATTERN = f"^{_SCOPE}(,{_SCOPE})*$"
# By key id: the time of the last use, and the time of use that was last written to the database. A key's time is
# written at most once a minute, so a killed process loses at most the last minute.
_last_uses: dict[int, int] = {}
_written_uses: dict[int, int] = {}
_WRITE_INTERVAL_MS = 60_000


class KeyWrite(Struct):
    """The fields of a new API key."""

    name: Annotated[Name, Meta(description="name of the key, such as the program that uses it")]
    scope: (
        Annotated[
            str,
            Meta(max_length=1000, extra={"line": True, "filled": True}, extra_json_schema={"pattern": _SCOPE_PATTERN}),
            Meta(
                description="`full`, `read`, `send`, `draft`, or a comma-separated list of scopes, such as "
                "`contacts:write,events:write`; default: `full`, for an agent `draft`"
            ),
        ]
        | UnsetType
    ) = UNSET
    test: Annotated[
        bool, Meta(description="true for a test key: everything that it sends is captured and counted nowhere")
    ] = False
    agent: Annotated[
        bool,
        Meta(
            description="true for the key of an AI agent, which reads, drafts and proposes; its scopes are those of "
            "`draft` or some of them"
        ),
    ] = False
    smtp_hourly_limit: (
        Annotated[
            int,
            Meta(ge=0, le=MAX_HOURLY_LIMIT),
            Meta(description="recipients by SMTP within an hour; 0: no limit; default: that of the installation"),
        ]
        | None
        | UnsetType
    ) = UNSET


class Credential(NamedTuple):
    """The account, scopes and actor of an authenticated API key or user of the API."""

    account_id: int
    scopes: frozenset[str]
    is_test: bool
    actor: str
    user_id: int | None = None  # None for an API key
    role: str | None = None
    session_id: int | None = None  # of a session with a JSON Web Token
    key_creator_id: int | None = None  # the user who created the API key
    is_agent: bool = False  # whether it is the key of an agent
    is_masked: bool = False  # whether contact data is masked for it, because of the role of its user

    @property
    def can_read_contacts(self) -> bool:
        """Whether the credential may read contacts, with contact data that is not masked."""
        return self.has_scope("contacts:read") and not self.is_masked

    def has_scope(self, scope: str) -> bool:
        """Return whether the credential has a scope; a write scope includes the read scope of the same area."""
        return scope in self.scopes or (scope.endswith(":read") and scope[:-4] + "write" in self.scopes)


def expand_scopes(scope: str) -> frozenset[str]:
    """Return the single scopes that a comma-separated scope text grants (docs/decisions.md#2).

    Raises Invalid if it contains an unknown scope.
    """
    scopes: set[str] = set()
    unknown = []
    for word in (part.strip() for part in scope.split(",")):
        if word == "full":
            scopes |= SCOPES
        elif word == "read":
            scopes |= {name for name in SCOPES if name.endswith(":read")}
        elif word == "send":
            scopes |= {"messages:read", "messages:send", "events:read", "events:write"}
        elif word == "draft":
            scopes |= AGENT_SCOPES
        elif word in SCOPES or word in AGENT_WRITE_SCOPES:
            scopes.add(word)
        else:
            unknown.append(word)
    if unknown:
        raise Invalid(
            {"scope": [gettext("is not included in the list")]},
            message=gettext("Unknown scope: %(unknown)s.", unknown=", ".join(unknown)),
        )
    return frozenset(scopes)


@cache
def describe_scopes(scopes: frozenset[str]) -> str:
    """Return scopes as the scope text of a key: `full`, `read`, `send`, `draft` or a comma-separated list, in order."""
    words = {expand_scopes(word): word for word in ("full", "read", "send", "draft")}
    known_scopes = scopes & (SCOPES | AGENT_WRITE_SCOPES)  # others belong to users and not to keys
    return words.get(known_scopes) or ",".join(sorted(known_scopes))


def validate_key(account_id: int, request: KeyWrite, _: int | None = None) -> None:
    """Raise Invalid with all errors of a new key: unknown scope, blank name, or an account that does not exist.

    The last parameter is the id of the path, which `api.endpoints.validator` passes; a new key has none.
    """
    faults, message = Faults(), ""
    try:
        _check_scopes(expand_scopes(get_scope(request)), request.agent)
    except Invalid as refused:
        faults.merge(refused.fields)
        message = refused.message
    if request.agent and request.test:
        faults.add("test", gettext("must be false for an agent"))
    if Account.get_or_none(Account.id == account_id) is None:
        faults.add("account", gettext("must exist"))
    if isinstance(request.name, str) and not request.name.strip():
        faults.add("name", gettext("can't be blank"))
    if faults.fields:
        raise Invalid(faults.fields, message=message if len(faults.fields) == 1 else "")


def get_scope(request: KeyWrite) -> str:
    """Return the scope text of a new key: that of the request, by default `full`, and for an agent `draft`."""
    return request.scope if isinstance(request.scope, str) else "draft" if request.agent else "full"


def _check_scopes(scopes: frozenset[str], is_agent: bool) -> None:
    """Raise Invalid if an agent would get a scope beyond `AGENT_SCOPES`, or another key one that only agents have.

    It is the only place that decides what the key of an agent may have.
    """
    forbidden = scopes - AGENT_SCOPES if is_agent else scopes - SCOPES
    if forbidden:
        names = ", ".join(sorted(forbidden))
        message = (
            gettext("An agent cannot have these scopes: %(names)s.", names=names)
            if is_agent
            else gettext("Only an agent can have these scopes: %(names)s.", names=names)
        )
        raise Invalid({"scope": [gettext("is not included in the list")]}, message=message)


def issue_key(
    account_id: int, name: str, scope: str = "full", test: bool = False, by: Actor = Actor(), agent: bool = False
) -> str:
    """Create an API key and return it; only its hash is stored, so it cannot be shown again.

    Messages of a key with `test` go to the built-in inbox; `agent` is for the key of an agent. Raises the errors of
    `create_key`.
    """
    return create_key(account_id, KeyWrite(name, scope, test, agent), by)[1]


def create_key(account_id: int, request: KeyWrite, by: Actor) -> tuple[ApiKey, str]:
    """Create an API key and return (row, key); raises Invalid with all errors of the request.

    Only the hash of the key is stored, so the key cannot be shown again.
    """
    require_write_transaction()
    validate_key(account_id, request)
    key = (TEST_PREFIX if request.test else LIVE_PREFIX) + crypto.random_base62(36)
    row = ApiKey.create(
        account=account_id, name=request.name.strip(), key_hash=crypto.hash_secret(key), hint=key[-4:],
        scope=get_scope(request), test=request.test, agent=request.agent, created_by=by.user_id,
        created_at=clock.now_ms(),
        smtp_hourly_limit=request.smtp_hourly_limit if isinstance(request.smtp_hourly_limit, int) else None,
    )  # fmt: skip
    kinds = {"for_tests": row.test, "agent": row.agent}
    data = {"name": row.name, "scope": row.scope, **{kind: True for kind, is_set in kinds.items() if is_set}}
    audit.record(by, account_id, "key_create", f"key:{row.id}", data)
    return row, key


def revoke_key(account_id: int, key_id: int, by: Actor) -> ApiKey:
    """Revoke an active key, so that the next request with it fails; raises NotFound for an unknown or revoked key."""
    require_write_transaction()
    key = ApiKey.get_or_none(ApiKey.account == account_id, ApiKey.id == key_id, ApiKey.revoked_at.is_null())
    if key is None:
        raise NotFound
    key.revoked_at = clock.now_ms()
    key.save()
    audit.record(by, account_id, "key_revoke", f"key:{key.id}", {"name": key.name})
    return key


def fetch_key_page(account_id: int, query: PageQuery) -> Page:
    """Return a page of the account's keys that are not revoked, newest first."""
    keys = ApiKey.select().where(ApiKey.account == account_id, ApiKey.revoked_at.is_null())
    return paginate(keys.order_by(ApiKey.created_at.desc(), ApiKey.id.desc()), query.page, query.size())


def find_credential(key: str) -> Credential | None:
    """Return the credential of an active API key, or None for an unknown or revoked key.

    The time of use is recorded in memory. The key is looked up by its hash, so that timing does not reveal how close a
    guess is.
    """
    if not key.startswith((LIVE_PREFIX, TEST_PREFIX)):
        return None
    row = fetch_one(
        "SELECT k.id, k.account_id, k.scope, k.test, k.created_by_id, k.agent FROM api_key k "
        "JOIN account a ON a.id = k.account_id "
        "WHERE k.key_hash = ? AND k.revoked_at IS NULL AND a.closed_at IS NULL",
        (crypto.hash_secret(key),),
    )
    if row is None:
        return None
    note_use(row[0])
    scopes, is_agent = expand_scopes(row[2]), bool(row[5])
    # The scopes of an agent were checked when its key was made. A row that was changed elsewhere gives it no others.
    granted = scopes & (AGENT_SCOPES if is_agent else SCOPES)
    return Credential(row[1], granted, bool(row[3]), f"key:{row[0]}", key_creator_id=row[4], is_agent=is_agent)


def note_use(key_id: int) -> None:
    """Record in memory that a key is used now; it is written later, with other uses."""
    _last_uses[key_id] = clock.now_ms()


def last_used_at(key: ApiKey) -> int | None:
    """Return when a key was last used, in milliseconds, including uses not yet written; None if it was never used."""
    return max((moment for moment in (key.last_used_at, _last_uses.get(key.id)) if moment is not None), default=None)


def collect_last_uses() -> dict[int, int]:
    """Return the times of last use, in Unix milliseconds, that should be written now, by key id.

    A key is left out for a minute after its last write.
    """
    now = clock.now_ms()
    return {
        key_id: moment
        for key_id, moment in list(_last_uses.items())
        if moment > _written_uses.get(key_id, -1) and abs(now - _written_uses.get(key_id, 0)) >= _WRITE_INTERVAL_MS
    }


def write_last_uses(moments: dict[int, int]) -> None:
    """Write times of last use (milliseconds by key id); a later time already stored is kept."""
    require_write_transaction()
    for number, moment in moments.items():
        run(
            "UPDATE api_key SET last_used_at = max(coalesce(last_used_at, 0), ?) WHERE id = ?",
            (moment, number),
        )
    after_commit(lambda: _written_uses.update(moments))


class SubmissionKey(NamedTuple):
    """An active API key that may send messages, with which a program has signed in by SMTP."""

    id: int
    account_id: int
    name: str
    is_test: bool
    hourly_limit: int  # of recipients; 0: no limit


def find_submission_key(name: str, key: str) -> SubmissionKey | None:
    """Return the active API key with this name that may send messages, or None.

    The case of the name does not matter.
    """
    credential = find_credential(key)
    if credential is None or credential.is_agent or not credential.has_scope("messages:send"):
        return None
    key_id = int(credential.actor.removeprefix("key:"))
    key_name, own_limit = rows("SELECT name, smtp_hourly_limit FROM api_key WHERE id = ?", (key_id,))[0]
    if key_name.strip().casefold() != name.strip().casefold():
        return None
    return SubmissionKey(key_id, credential.account_id, key_name, credential.is_test, get_hourly_limit(own_limit))


def can_key_send(key: ApiKey) -> bool:
    """Return whether an API key may send messages."""
    return not key.agent and "messages:send" in expand_scopes(key.scope)


def get_hourly_limit(own_limit: int | None) -> int:
    """Return the limit of SMTP recipients of a key within an hour: its own, else that of the installation."""
    return config.current().submission.recipients_per_hour if own_limit is None else own_limit


def count_submission(key_id: int, now: int, is_new: bool) -> bool:
    """Record a use of a key by SMTP submission; with `is_new`, also count an email.

    Returns False if the key was revoked; its row is then unchanged.
    """
    require_write_transaction()
    _last_uses[key_id] = now
    return bool(
        run(
            "UPDATE api_key SET smtp_count = smtp_count + ?, smtp_last_at = ? WHERE id = ? AND revoked_at IS NULL",
            (int(is_new), now, key_id),
        )
    )


# The scope for managing keys and users and for reading the audit log. No API key and no own role can have it,
# because a user who creates keys and roles can grant any right.
ADMIN_SCOPE = "admin"
# The scope for the user's own profile. Every role has it; no API key can have it.
SELF_SCOPE = "self"
# The rights of users beyond the scopes of keys: to download contacts and what they did, and to see contact data that
# cannot be masked, such as a sent email. An API key does both with `contacts:read`.
EXPORT_SCOPE, FULL_SCOPE = "contacts:export", "contacts:full"

ROLES = ("owner", "admin", "editor", "author", "viewer")
_VIEWER = frozenset(scope for scope in SCOPES if scope.endswith(":read")) | {SELF_SCOPE, EXPORT_SCOPE, FULL_SCOPE}
_AUTHOR = _VIEWER | {f"{area}:write" for area in ("contacts", "templates", "events", "campaigns", "flows")}
_EDITOR = (SCOPES | _VIEWER) - {"campaigns:approve", "account:write", "domains:write"}
_ROLE_SCOPES = {
    "owner": SCOPES | _VIEWER | {ADMIN_SCOPE},
    "admin": SCOPES | _VIEWER | {ADMIN_SCOPE},
    "editor": _EDITOR,
    "author": _AUTHOR,
    "viewer": _VIEWER,
}
# The scopes that an own role can have (`accounts/roles.py`).
OWN_ROLE_SCOPES = SCOPES | {EXPORT_SCOPE}
# The scopes that a role without `contacts:read`, or with masked contact data, cannot have: they change or download
# contacts, or decide what is sent to them or about them, and so could find out everything about them
# (docs/threats.md#t45).
FULL_DATA_SCOPES = frozenset(
    ("contacts:write", "contacts:export", "events:write", "account:write", "messages:send", "campaigns:send",
     "campaigns:approve")
)  # fmt: skip


class Rights(NamedTuple):
    """What a role allows: its scopes, and whether contact data is masked for it."""

    scopes: frozenset[str]
    is_masked: bool = False


NO_RIGHTS = Rights(frozenset())


def get_rights(role: str) -> Rights:
    """Return the rights of a role: a built-in name, or the id of an own role, such as `7`.

    Own roles are read from the database. An unknown role has no rights. Contact data is masked for a role without
    `contacts:read`, too.
    """
    if role in _ROLE_SCOPES:
        return Rights(_ROLE_SCOPES[role])
    row = fetch_one("SELECT scopes, contact_data FROM role WHERE id = ?", (int(role),)) if is_own_role(role) else None
    return build_rights(msgspec.json.decode(row[0]), row[1]) if row is not None else NO_RIGHTS


def build_rights(scopes: Iterable[str], contact_data: str) -> Rights:
    """Return the rights of an own role with these scopes; `contact_data` is `full` or `masked`.

    Scopes that an own role cannot have are left out, whatever its row says.
    """
    granted = complete_scopes(frozenset(scopes) & OWN_ROLE_SCOPES)
    is_masked = contact_data != "full" or "contacts:read" not in granted
    extra = {SELF_SCOPE} if is_masked else {SELF_SCOPE, FULL_SCOPE}
    return Rights((granted - FULL_DATA_SCOPES if is_masked else granted) | extra, is_masked)


def complete_scopes(scopes: frozenset[str]) -> frozenset[str]:
    """Return the scopes of an own role together with the read scopes that they need.

    A scope of an area includes its read scope, and every role has `account:read`. `contacts:read` includes events and
    messages, because the page of a contact shows them; `flows:write` includes events, which conditions of a flow read.
    """
    areas = {scope.partition(":")[0] for scope in scopes}
    complete = scopes | {"account:read"} | ({f"{area}:read" for area in areas} & SCOPES)
    if "contacts:read" in complete:
        complete |= {"events:read", "messages:read"}
    return complete | {"events:read"} if "flows:write" in complete else complete


def is_own_role(role: str) -> bool:
    """Return whether a role is written as the id of an own role; whether the role exists is not checked."""
    return role.isascii() and role.isdigit() and len(role) <= _MAX_ROLE_DIGITS


def find_role(account_id: int, text: str) -> str | None:
    """Return the role that a text names, as users and invitations store it, or None.

    The text is a built-in name, or the id or the name of an own role of the account. The case of a name does not
    matter.
    """
    key = normalize_name(text)
    if key in _ROLE_SCOPES:
        return key
    own_id = int(key) if is_own_role(key) else None
    row = fetch_one("SELECT id FROM role WHERE account_id = ? AND (id = ? OR name_key = ?)", (account_id, own_id, key))
    return str(row[0]) if row is not None else None


def role_scopes(role: str) -> frozenset[str]:
    """Return the scopes of a role, as `get_rights`; none for an unknown role."""
    return get_rights(role).scopes


def list_roles_with(account_id: int, scope: str) -> list[str]:
    """Return the roles of an account that have a scope: built-in names, and the ids of own roles."""
    own_roles = [str(row[0]) for row in rows("SELECT id FROM role WHERE account_id = ?", (account_id,))]
    return [role for role in (*ROLES, *own_roles) if scope in role_scopes(role)]


def role_can_send(role: str) -> bool:
    """Return whether users of a role may send and stop campaigns and flows."""
    return "campaigns:send" in role_scopes(role)
