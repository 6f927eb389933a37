"""Events that clients send, written so that a repeat is known and nothing waits for the database twice."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from msgspec import structs

from appliance import clock
from appliance.db.open import connection, one, scalar
from appliance.db.work import after_commit, writing
from appliance.errors import Conflict, Invalid, Refused
from appliance.events.requests import EventWrite, Ready, prepare
from appliance.tables.kinds import Json
from appliance.work import wake_ups

_COLUMNS = (
    "account_id", "contact_id", "event", "amount", "data", "idempotency_key", "resource_uid", "resource_name",
    "resource_url", "test", "generated", "quiet", "chain_depth", "ip", "user_agent", "browser", "os", "device_type",
    "referrer", "utm_source", "utm_medium", "utm_term", "utm_content", "utm_campaign", "created_at", "updated_at",
)  # fmt: skip
_INSERT = f"INSERT INTO event ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))}) RETURNING id"
_JSON = Json()
# By which a repeat is held against the first; who it is about is asked for itself, and of their address a part is kept
_COMPARED = (
    "amount", "resource_uid", "resource_name", "resource_url", "test", "user_agent", "referrer", "utm_source",
    "utm_medium", "utm_term", "utm_content", "utm_campaign",
)  # fmt: skip
_KNOWN = ("id", "contact_id", "created_at", "data", *_COMPARED)
_BY_KEY = f"SELECT {', '.join(_KNOWN)} FROM event WHERE account_id = ? AND event = ? AND idempotency_key = ?"


class Submitted(NamedTuple):
    """An event that is recorded: as it was just written, or None where it had been sent before."""

    id: int
    values: dict[str, Any] | None

    @property
    def repeated(self) -> bool:
        """Whether it had been sent before."""
        return self.values is None


def missing_contact(account_id: int, ready: Ready) -> str | None:
    """Return the address of a contact that has to be made first, or None."""
    if not ready.creates or ready.address is None or ready.faults or _known(account_id, ready) is not None:
        return None
    return None if _whose(account_id, ready) is not None else ready.address


def check(account_id: int, request: EventWrite, _: int | None = None) -> None:
    """Raise Invalid with all that is wrong with an event, beyond its types."""
    if not isinstance(request.event, str):  # what was sent for it was told already: any name will do
        request = structs.replace(request, event="unknown")
    ready = prepare(request)
    is_made = ready.creates and ready.address is not None
    if faults := dict(ready.faults) if is_made else _faults(ready, _whose(account_id, ready)):
        raise Invalid(faults)


def submit(account_id: int, ready: Ready) -> Submitted:
    """Record an event of a client; raises Invalid with all faults, Conflict for a key used for another payload."""
    (done,) = submit_many(account_id, [ready])
    if isinstance(done, Refused):
        raise done
    return done


def submit_many(account_id: int, all_ready: Sequence[Ready]) -> list[Submitted | Refused]:
    """Record events of a client in one go; answers for each what became of it. One that is refused keeps none out."""
    writing()
    now, how = clock.now_ms(), ""
    if any(ready.ip for ready in all_ready):
        how = str(scalar("SELECT privacy_ip FROM account WHERE id = ?", (account_id,)))
    done: list[Submitted | Refused] = []
    for ready in all_ready:
        try:
            done.append(_submit(account_id, ready, now, how))
        except (Invalid, Conflict) as refused:
            done.append(refused)
    new = [made.values for made in done if isinstance(made, Submitted) and made.values is not None]
    _saw_them(new)
    if new:
        after_commit(lambda: wake_ups.ring("flows"))
    return done


def _submit(account_id: int, ready: Ready, now: int, how: str) -> Submitted:
    contact_id = _whose(account_id, ready)
    known = _known(account_id, ready) if not ready.faults else None
    if known is not None:
        if _differs(known, ready, contact_id):
            raise Conflict("this idempotency_key was used for another event", code="idempotency_conflict")
        return Submitted(known["id"], None)
    if faults := _faults(ready, contact_id):
        raise Invalid(faults)
    at = now if ready.at is None else ready.at
    values = ready.values | {
        "account_id": account_id, "contact_id": contact_id, "generated": False, "quiet": bool(ready.late),
        "chain_depth": 0, "ip": ready.ip.get(how), "created_at": at, "updated_at": now,
    }  # fmt: skip
    row = values | {"data": _JSON.db_value(values["data"])}
    ((number,),) = connection().execute(_INSERT, [row[name] for name in _COLUMNS]).fetchall()
    return Submitted(int(number), values)


def _saw_them(new: Iterable[dict[str, Any]]) -> None:
    """Note when people were last seen, by what they did; a test is nobody's doing."""
    seen: dict[int, int] = {}
    for values in new:
        if not values["test"]:
            seen[values["contact_id"]] = max(values["created_at"], seen.get(values["contact_id"], 0))
    if seen:
        connection().executemany(
            "UPDATE contact SET last_interacted_at = :at "
            "WHERE id = :id AND (last_interacted_at IS NULL OR last_interacted_at < :at)",
            [{"id": contact_id, "at": at} for contact_id, at in seen.items()],
        )


def _faults(ready: Ready, contact_id: int | None) -> dict[str, list[str]]:
    faults = dict(ready.faults)
    if contact_id is None and "contact_id" not in faults:
        faults["contact_id" if ready.contact_id is not None else "contact_email"] = ["must exist"]
    return faults


def _known(account_id: int, ready: Ready) -> dict[str, Any] | None:
    """Return what is compared of the event that was sent with this key before."""
    found = one(_BY_KEY, (account_id, ready.event, ready.key)) if ready.key is not None else None
    return None if found is None else dict(zip(_KNOWN, found, strict=True))


def _differs(known: dict[str, Any], ready: Ready, contact_id: int | None) -> bool:
    """Return whether a repeat by its key says anything else than the first one did.

    Whom it names may have been merged into somebody else since, or be gone: that is no other payload.
    """
    if ready.at is not None and ready.at != known["created_at"]:
        return True
    if contact_id is not None and contact_id != known["contact_id"]:
        return True
    if _JSON.python_value(known["data"]) != ready.values["data"]:
        return True
    return any(known[name] != ready.values[name] for name in _COMPARED)


def _whose(account_id: int, ready: Ready) -> int | None:
    if ready.contact_id is not None:
        found: Any = one("SELECT id FROM contact WHERE id = ? AND account_id = ?", (ready.contact_id, account_id))
    elif ready.address_key is not None:
        words = "SELECT contact_id FROM channel WHERE account_id = ? AND kind = 'email' AND key = ?"
        found = one(words, (account_id, ready.address_key))
    else:
        return None
    return int(found[0]) if found else None
