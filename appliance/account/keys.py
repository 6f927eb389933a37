"""API keys: made and revoked here, shown once, stored as digests."""

from typing import NamedTuple

from appliance import clock, tokens
from appliance.db.open import one
from appliance.db.work import writing
from appliance.errors import Invalid, NotFound
from appliance.tables import Account, ApiKey

LIVE, TEST, PUBLIC = "camp_live_", "camp_test_", "camp_pub_"

SCOPES = frozenset(
    [f"{area}:{act}" for area in ("contacts", "templates", "events", "domains", "account", "flows")
     for act in ("read", "write")]
    + [f"campaigns:{act}" for act in ("read", "write", "send", "approve")]
    + ["messages:read", "messages:send"]
)  # fmt: skip


class Credential(NamedTuple):
    """Who asks: the account, what the credential reaches, and whether all it does is a test."""

    account_id: int
    scopes: frozenset[str]
    test: bool
    actor: str

    def reaches(self, scope: str) -> bool:
        """Say whether the credential reaches a scope; writing includes reading."""
        return scope in self.scopes or (scope.endswith(":read") and scope[:-4] + "write" in self.scopes)


def expand(scope: str) -> frozenset[str]:
    """Read a scope text into single scopes; raises Invalid for unknown words (decisions, section 2)."""
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


def create(account_id: int, name: str, scope: str = "full", test: bool = False, user_id: int | None = None) -> str:
    """Make a key and answer it, the only time it is ever seen; raises Invalid for an unknown scope or account."""
    writing()
    expand(scope)
    if Account.get_or_none(Account.id == account_id) is None:
        raise Invalid({"account": ["must exist"]})
    if not name.strip():
        raise Invalid({"name": ["can't be blank"]})
    key = (TEST if test else LIVE) + tokens.random_base62(36)
    ApiKey.create(
        account=account_id, name=name.strip(), digest=tokens.digest(key), hint=key[-4:], scope=scope, test=test,
        created_by=user_id, created_at=clock.now_ms(),
    )  # fmt: skip
    return key


def revoke(account_id: int, key_id: int) -> ApiKey:
    """End a key; it opens nothing from the next request on. Raises NotFound."""
    writing()
    key = ApiKey.get_or_none(ApiKey.account == account_id, ApiKey.id == key_id, ApiKey.revoked_at.is_null())
    if key is None:
        raise NotFound
    key.revoked_at = clock.now_ms()
    key.save()
    return key


def find(key: str) -> Credential | None:
    """Answer who a key belongs to, or None; one indexed read by its digest, so nothing is compared that could leak."""
    if not key.startswith((LIVE, TEST)):
        return None
    row = one(
        "SELECT id, account_id, scope, test FROM api_key WHERE digest = ? AND revoked_at IS NULL",
        (tokens.digest(key),),
    )
    if row is None:
        return None
    return Credential(row[1], expand(row[2]), bool(row[3]), f"key:{row[0]}")
