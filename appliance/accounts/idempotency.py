"""Idempotency keys: for 7 days, a repeated request with the same key gets the first response (docs/decisions.md#4)."""

import hashlib
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from appliance.core import clock
from appliance.core.errors import Conflict, Invalid
from appliance.core.i18n import gettext
from appliance.storage.database import rows, run
from appliance.storage.models import Idempotency
from appliance.storage.transactions import require_write_transaction

RETENTION_MS = 7 * 24 * 3600 * 1000


class OnceResult(NamedTuple):
    """The id of the created resource (0 for none), and whether an earlier request with the same key created it."""

    resource_id: int
    is_replay: bool


def hash_payload(payload: Any) -> str:
    """Return the SHA-256 of a payload as hex; the order of its keys does not matter."""
    # The standard encoder accepts what msgspec rejects, such as half of a surrogate pair in a field that is ignored.
    text = json.dumps(payload, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def validate_key(key: str, field: str = "Idempotency-Key") -> None:
    """Raise Invalid for `field` unless the key has 1 to 255 characters, all printable."""
    if not (1 <= len(key) <= 255 and key.isprintable()):
        raise Invalid({field: [gettext("is invalid")]})


def run_once(
    account_id: int, path: str, key: str | None, payload: Any, function: Callable[[], int | None], test: bool = False
) -> OnceResult:
    """Call `function` once for a key and return the id that it created; a repeat returns the stored id instead.

    With `key=None`, `function` is always called. If `function` returns None, nothing was created: nothing is stored,
    and `resource_id` is 0. The same key may be used again for another path, and by test requests. A key expires after
    `RETENTION_MS`. Raises Conflict if the key was used with another payload.

    The key is stored in the same transaction as the changes of `function`, so a failed request can be repeated.
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
            raise Conflict(gettext("This Idempotency-Key was used for another request."), code="idempotency_conflict")
        return OnceResult(int(row.resource_id), True)
    resource_id = function()
    if resource_id is None:
        return OnceResult(0, False)
    Idempotency.create(
        account=account_id, path=path, key=key, payload_hash=payload_hash, resource_id=resource_id, created_at=now
    )
    return OnceResult(resource_id, False)


def find_expired(limit: int) -> list[int]:
    """Return the ids of up to `limit` rows older than `RETENTION_MS`."""
    expired = rows("SELECT id FROM idempotency WHERE created_at < ? LIMIT ?", (clock.now_ms() - RETENTION_MS, limit))
    return [row[0] for row in expired]


def delete_expired(ids: list[int]) -> int:
    """Delete the rows with these ids and return their number.

    A background job deletes them in batches, so that no request waits while a day's rows are deleted.
    """
    require_write_transaction()
    return run(f"DELETE FROM idempotency WHERE id IN ({','.join(map(str, ids))})")
