"""Webhooks: those that were switched off, or fail at the moment, and those that nothing can be signed for."""

from collections.abc import Iterator
from pathlib import Path

from appliance.core import clock
from appliance.ops.doctor.findings import MAX_SHOWN, Line
from appliance.storage.open import rows
from appliance.webhooks import secret, store
from appliance.webhooks.secret import Sealed

_OF = (
    "SELECT id, account_id, url, secret, enabled, failing_since, disabled_at, disabled_reason, (SELECT count(*) "
    "FROM webhook_delivery WHERE webhook_id = webhook.id AND status = 'pending') FROM webhook "
    "WHERE deleted_at IS NULL AND (?1 IS NULL OR account_id = ?1) ORDER BY id"
)


def heard(directory: Path, account_id: int | None) -> Iterator[Line]:
    """Look whether those who asked to be told of events can be told; nothing is sent for that."""
    found = list(_faults(account_id))
    yield from found[:MAX_SHOWN]
    if len(found) > MAX_SHOWN:
        yield Line("warn", "webhooks", f"{len(found) - MAX_SHOWN} more like these")
    count = len(rows(_OF, (account_id,)))
    if count and not found:
        yield Line("ok", "webhooks", "1 webhook" if count == 1 else f"{count} webhooks")


def _faults(account_id: int | None) -> Iterator[Line]:
    for number, account, url, sealed, enabled, failing, off, reason, waiting in rows(_OF, (account_id,)):
        words = f"webhook {number} to {store.host_of(url)}"
        if not secret.usable(Sealed(account, sealed)):
            yield Line(
                "fail", "webhooks", f"{words}: its secret cannot be read",
                "put back the secret.key that belongs to this database, or POST "
                f"/v1/my/webhooks/{number}/rotate_secret",
            )  # fmt: skip
        elif reason is not None:
            since = clock.iso(off)
            yield Line(
                "warn", "webhooks", f"{words} was switched off ({reason}) at {since}; {waiting} deliveries wait",
                f'mend what listens there, then PATCH /v1/my/webhooks/{number} {{"enabled": true}}',
            )  # fmt: skip
        elif enabled and failing is not None:
            words += f" has taken nothing since {clock.iso(failing)}; {waiting} deliveries wait"
            yield Line("warn", "webhooks", words)
