"""API keys: made and revoked here, shown once, stored as digests."""

from typing import Annotated, NamedTuple

from msgspec import Meta, Struct

from appliance.accounts import audit
from appliance.accounts.acting import By
from appliance.core import clock, tokens
from appliance.core.errors import Faults, Invalid, NotFound
from appliance.core.fields import Name, PageQuery
from appliance.core.pagination import Page, paginate
from appliance.storage.models import Account, ApiKey
from appliance.storage.open import fetch_one, run
from appliance.storage.work import after_commit, writing

LIVE, TEST, PUBLIC = "camp_live_", "camp_test_", "camp_pub_"

SCOPES = frozenset(
    [f"{area}:{act}" for area in ("contacts", "templates", "events", "domains", "account", "flows")
     for act in ("read", "write")]
    + [f"campaigns:{act}" for act in ("read", "write", "send", "approve")]
    + ["messages:read", "messages:send"]
)  # fmt: skip

_SCOPE = f" *({'|'.join(['full', 'read', 'send', *sorted(SCOPES)])}) *"
_SCOPE_PATTERN = f"^{_SCOPE}(,{_SCOPE})*$"
# When keys were used last, by their ids: what is not written yet, and what was. A kill loses a minute of it at most
_used: dict[int, int] = {}
_written: dict[int, int] = {}
_EVERY_MS = 60_000


class KeyWrite(Struct):
    """A key that is to be made."""

    name: Name
    # `full`, `read`, `send`, or single ones with commas between (docs/decisions.md#2)
    scope: Annotated[
        str,
        Meta(max_length=1000, extra={"line": True, "filled": True}, extra_json_schema={"pattern": _SCOPE_PATTERN}),
    ] = "full"
    test: bool = False


class Credential(NamedTuple):
    """Who asks: the account, what the credential reaches, and whether all it does is a test."""

    account_id: int
    scopes: frozenset[str]
    test: bool
    actor: str
    user_id: int | None = None  # of a person; None: a key
    role: str | None = None
    session_id: int | None = None  # of the sign-in that a JWT stands for
    made_by: int | None = None  # of a key: the person who made it

    def reaches(self, scope: str) -> bool:
        """Return whether the credential reaches a scope; writing includes reading."""
        return scope in self.scopes or (scope.endswith(":read") and scope[:-4] + "write" in self.scopes)


def expand(scope: str) -> frozenset[str]:
    """Read a scope text into single scopes; raises Invalid for unknown words (docs/decisions.md#2)."""
    found: set[str] = set()
    unknown = []
    for word in (part.strip() for part in scope.split(",")):
        if word == "full":
            found |= SCOPES
        elif word == "read":
            found |= {name for name in SCOPES if name.endswith(":read")}
        elif word == "send":
            found |= {"messages:read", "messages:send", "events:read", "events:write"}
        elif word in SCOPES:
            found.add(word)
        else:
            unknown.append(word)
    if unknown:
        raise Invalid({"scope": ["is not included in the list"]}, message=f"unknown scope: {', '.join(unknown)}")
    return frozenset(found)


def check(account_id: int, asked: KeyWrite, _: int | None = None) -> None:
    """Raise Invalid with all that is wrong with a key that is to be made, as far as it is known."""
    faults, words = Faults(), ""
    try:
        expand(asked.scope)
    except Invalid as refused:
        faults.merge(refused.fields)
        words = refused.message
    if Account.get_or_none(Account.id == account_id) is None:
        faults.add("account", "must exist")
    if isinstance(asked.name, str) and not asked.name.strip():
        faults.add("name", "can't be blank")
    if faults.fields:
        raise Invalid(faults.fields, message=words if len(faults.fields) == 1 else "")


def create(account_id: int, name: str, scope: str = "full", test: bool = False, by: By = By()) -> str:
    """Make a key and answer it, the only time it is ever seen; raises Invalid for an unknown scope or account."""
    return make(account_id, KeyWrite(name, scope, test), by)[1]


def make(account_id: int, asked: KeyWrite, by: By) -> tuple[ApiKey, str]:
    """Make a key and answer its row with the key itself, the only time it is ever seen; raises Invalid."""
    writing()
    check(account_id, asked)
    key = (TEST if asked.test else LIVE) + tokens.random_base62(36)
    made = ApiKey.create(
        account=account_id, name=asked.name.strip(), digest=tokens.digest(key), hint=key[-4:], scope=asked.scope,
        test=asked.test, created_by=by.user_id, created_at=clock.now_ms(),
    )  # fmt: skip
    told = {"name": made.name, "scope": made.scope, **({"for_tests": True} if made.test else {})}
    audit.note(by, account_id, "key_create", f"key:{made.id}", told)
    return made, key


def revoke(account_id: int, key_id: int, by: By) -> ApiKey:
    """End a key; it opens nothing from the next request on. Raises NotFound."""
    writing()
    key = ApiKey.get_or_none(ApiKey.account == account_id, ApiKey.id == key_id, ApiKey.revoked_at.is_null())
    if key is None:
        raise NotFound
    key.revoked_at = clock.now_ms()
    key.save()
    audit.note(by, account_id, "key_revoke", f"key:{key.id}", {"name": key.name})
    return key


def page(account_id: int, query: PageQuery) -> Page:
    """List the keys of an account that open something, newest first."""
    found = ApiKey.select().where(ApiKey.account == account_id, ApiKey.revoked_at.is_null())
    return paginate(found.order_by(ApiKey.created_at.desc(), ApiKey.id.desc()), query.page, query.size())


def find(key: str) -> Credential | None:
    """Return who a key belongs to, or None; one indexed read by its digest, so nothing is compared that could leak."""
    if not key.startswith((LIVE, TEST)):
        return None
    row = fetch_one(
        "SELECT id, account_id, scope, test, created_by_id FROM api_key WHERE digest = ? AND revoked_at IS NULL",
        (tokens.digest(key),),
    )
    if row is None:
        return None
    _used[row[0]] = clock.now_ms()
    return Credential(row[1], expand(row[2]), bool(row[3]), f"key:{row[0]}", made_by=row[4])


def last_used(key: ApiKey) -> int | None:
    """Return when a key was used last, also where that is not written yet; None for never."""
    return max((moment for moment in (key.last_used_at, _used.get(key.id)) if moment is not None), default=None)


def unwritten() -> dict[int, int]:
    """Return the uses that may be written now: of each key one in a minute, so that no request waits for a write."""
    now = clock.now_ms()
    return {number: moment for number, moment in list(_used.items())
            if moment > _written.get(number, -1) and abs(now - _written.get(number, 0)) >= _EVERY_MS}  # fmt: skip


def note_used(moments: dict[int, int]) -> None:
    """Write when keys were used last."""
    writing()
    for number, moment in moments.items():
        run(
            "UPDATE api_key SET last_used_at = max(coalesce(last_used_at, 0), ?) WHERE id = ?",
            (moment, number),
        )
    after_commit(lambda: _written.update(moments))
