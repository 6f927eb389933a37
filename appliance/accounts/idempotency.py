"""Idempotency keys: a repeated request gets the first response for 7 days (docs/decisions.md#4)."""

import hashlib
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from appliance.core import clock
from appliance.core.errors import Conflict, Invalid
from appliance.storage.database import rows, run
from appliance.storage.models import Idempotency
from appliance.storage.transactions import require_write_transaction

RETENTION_MS = 7 * 24 * 3600 * 1000


class OnceResult(NamedTuple):
    """The affected resource, and whether the request was a repeat."""

    resource_id: int
    is_replay: bool


def hash_payload(payload: Any) -> str:
    """Return a hash of a payload that does not depend on the order of its keys."""
    # The standard encoder accepts what msgspec refuses, such as half of a surrogate pair in an ignored key.
    text = json.dumps(payload, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def validate_key(key: str, field: str = "Idempotency-Key") -> None:
    """Raise Invalid unless a key is 1 to 255 printable characters."""
    if not (1 <= len(key) <= 255 and key.isprintable()):
        raise Invalid({field: ["is invalid"]})


def run_once(
    account_id: int, path: str, key: str | None, payload: Any, function: Callable[[], int | None], test: bool = False
) -> OnceResult:
    """Run a function that returns the id it created, or return the stored id; raises Conflict for another payload.

    A function that returns None was refused: nothing is stored, and `resource_id` is 0. Requests of test keys are
    stored separately from live ones.

    The row is written in the same transaction as the function's changes, so that a failure is not stored.
    """
    require_write_transaction()
    if key is None:
        return OnceResult(function() or 0, False)
    path += "?test" if test else ""
    payload_hash, now = hash_payload(payload), clock.now_ms()
    row = Idempotency.get_or_none(Idempotency.account == account_id, Idempotency.path == path, Idempotency.key == key)
    if row is not None and row.created_at < now - RETENTION_MS:
        row.delete_instance()
        row = None
    if row is not None:
        if row.payload_hash != payload_hash:
            raise Conflict("This Idempotency-Key was used for another request.", code="idempotency_conflict")
        return OnceResult(int(row.resource_id), True)
    resource_id = function()
    if resource_id is None:
        return OnceResult(0, False)
    Idempotency.create(
        account=account_id, path=path, key=key, payload_hash=payload_hash, resource_id=resource_id, created_at=now
    )
    return OnceResult(resource_id, False)


def find_expired(limit: int) -> list[int]:
    """Return the ids of expired rows, at most `limit`."""
    expired = rows("SELECT id FROM idempotency WHERE created_at < ? LIMIT ?", (clock.now_ms() - RETENTION_MS, limit))
    return [row[0] for row in expired]


def delete_expired(ids: list[int]) -> int:
    """Delete expired rows; a background job does it, so that no request waits for a day's rows."""
    require_write_transaction()
    return run(f"DELETE FROM idempotency WHERE id IN ({','.join(map(str, ids))})")
