"""SMS that may be refusals in other words, and that nobody has looked at: whoever wrote them still gets more."""

from collections.abc import Iterator
from pathlib import Path

from appliance.core import clock
from appliance.ops.doctor.findings import Line
from appliance.storage.open import rows

_WAITING = (
    "SELECT account_id, count(*), min(created_at) FROM incoming INDEXED BY incoming_refusals "
    "WHERE kind = 'refusal' AND seen_at IS NULL AND opted_out = 0 AND (?1 IS NULL OR account_id = ?1) "
    "GROUP BY account_id"
)


def unseen(directory: Path, account_id: int | None) -> Iterator[Line]:
    """Look whether somebody may have asked for no more, in words that only a person can judge."""
    for number, count, since in rows(_WAITING, (account_id,)):
        words = f"account {number}: {count} SMS may be refusals and wait to be looked at, since {clock.iso(since)}"
        yield Line("warn", "SMS", words, "GET /v1/my/incoming?unseen=true, then POST /v1/my/incoming/{id}/seen")
