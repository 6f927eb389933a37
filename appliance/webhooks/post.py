"""One attempt: the event as it is written out, signed, posted, and what was answered."""

import re
import time
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from appliance.events import shape
from appliance.sending.delivery import safe_http
from appliance.sending.delivery.safe_http import Kept, Unreached
from appliance.storage.open import fetch_one
from appliance.webhooks import secret
from appliance.webhooks.outcomes import Job, Outcome
from appliance.webhooks.secret import Sealed

SECONDS = 5.0
# So much of an answer is read, and so much of it kept
_READ_BYTES, _KEPT = 16_384, 1_000
UNREACHED = "no answer: the address cannot be reached within 5 seconds, or is not public"
SEALED = "its secret cannot be read: put back the secret.key that belongs to this database, or give it another secret"
DELETED = "the webhook was deleted"
GONE = "the event is not kept any more"
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_MAX_PAUSE_MS = 24 * 3600 * 1000


class Target(NamedTuple):
    """Where a webhook leads, and what it signs with."""

    url: str
    sealed: Sealed


async def attempt(job: Job, kept: Kept) -> Outcome:
    """Send a delivery once; raises nothing that the other side may provoke."""
    row = fetch_one(
        "SELECT w.url, d.created_at, w.account_id, w.secret, w.old_secret, w.old_secret_until FROM webhook_delivery d "
        "JOIN webhook w ON w.id = d.webhook_id WHERE d.id = ? AND w.deleted_at IS NULL",
        (job.id,),
    )
    if row is None:
        return Outcome(job, error=DELETED, senseless=True)
    event = shape.read(job.event_id)
    if event is None:
        return Outcome(job, error=GONE, senseless=True)
    # With its moment, for after a backup was restored numbers are given again, and no repeat is meant by that
    return await send(job, Target(row[0], Sealed(*row[2:])), event, f"msg_{job.id}_{row[1]}", kept)


async def send(job: Job, target: Target, event: shape.Event, name: str, kept: Kept | None = None) -> Outcome:
    """Post an event under the name of its message."""
    signing = secret.usable(target.sealed)
    if not signing:
        return Outcome(job, error=SEALED)
    body, began = msgspec.json.encode(event), time.monotonic()
    try:
        answer = await safe_http.ask(
            "POST", target.url, headers=secret.headers(signing, name, body), content=body, most=_READ_BYTES,
            seconds=SECONDS, cut=True, kept=kept,
        )  # fmt: skip
    except Unreached:
        return Outcome(job, error=UNREACHED)
    took = int(1000 * (time.monotonic() - began))
    return Outcome(job, answer.status, _readable(answer.body), duration_ms=took, retry_after_ms=_asked(answer.headers))


def _readable(body: bytes) -> str:
    return _CONTROL.sub("�", body.decode("utf-8", "replace"))[:_KEPT]


def _asked(headers: Mapping[str, str]) -> int:
    """Return how long a receiver asks us to wait, where it says so in seconds."""
    text = headers.get("retry-after", "")
    return min(int(text) * 1000, _MAX_PAUSE_MS) if text.isascii() and text.isdecimal() and len(text) < 9 else 0
