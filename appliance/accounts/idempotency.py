"""Repeats that change nothing: the first answer is remembered for 7 days (docs/decisions.md#4)."""

import hashlib
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from appliance.core import clock
from appliance.core.errors import Conflict, Invalid
from appliance.storage.models import Idempotency
from appliance.storage.open import rows, run
from appliance.storage.work import writing

KEPT_MS = 7 * 24 * 3600 * 1000


class Once(NamedTuple):
    """The resource acted on, and whether this was a repeat."""

    resource_id: int
    replayed: bool


def payload_digest(payload: Any) -> str:
    """Return the digest that tells whether two payloads are the same, whatever the order of their keys."""
    # The standard encoder takes what the other refuses, such as half of a surrogate pair in an ignored key
    text = json.dumps(payload, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def check_key(key: str, field: str = "Idempotency-Key") -> None:
    """Raise Invalid unless a key is 1 to 255 printable characters."""
    if not (1 <= len(key) <= 255 and key.isprintable()):
        raise Invalid({field: ["is invalid"]})


def once(
    account_id: int, path: str, key: str | None, payload: Any, verb: Callable[[], int | None], test: bool = False
) -> Once:
    """Run a verb that answers the id it made, or answer the remembered id; Conflict for another payload.

    A verb that answers None has been refused: nothing is remembered, and `resource_id` is 0. What a `test` key asks
    is remembered apart, or it would be answered by what was done for real, and the other way round.

    Runs in the verb's own transaction: what failed is not remembered, what was answered is.
    """
    writing()
    if key is None:
        return Once(verb() or 0, False)
    path += "?test" if test else ""
    digest, now = payload_digest(payload), clock.now_ms()
    found = Idempotency.get_or_none(Idempotency.account == account_id, Idempotency.path == path, Idempotency.key == key)
    if found is not None and found.created_at < now - KEPT_MS:
        found.delete_instance()
        found = None
    if found is not None:
        if found.payload != digest:
            raise Conflict("this Idempotency-Key was used for another request", code="idempotency_conflict")
        return Once(int(found.resource_id), True)
    made = verb()
    if made is None:
        return Once(0, False)
    Idempotency.create(account=account_id, path=path, key=key, payload=digest, resource_id=made, created_at=now)
    return Once(made, False)


def old(most: int) -> list[int]:
    """Return some repeats that nobody is answered by any more."""
    found = rows("SELECT id FROM idempotency WHERE created_at < ? LIMIT ?", (clock.now_ms() - KEPT_MS, most))
    return [row[0] for row in found]


def forget(some: list[int]) -> int:
    """Drop them; not with a request, which would have to wait for all that a day has left."""
    writing()
    return run(f"DELETE FROM idempotency WHERE id IN ({','.join(map(str, some))})")
