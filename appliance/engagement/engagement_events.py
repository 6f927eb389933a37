"""The events of opens and clicks: what was asked for, by whom as far as we know, and why we think so."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from appliance import clock
from appliance.db.open import connection, rows, scalar
from appliance.db.work import after_commit
from appliance.engagement.bot_detection import Seen, Verdict
from appliance.events import agents, utm
from appliance.messages.link_targets import Found
from appliance.work import wake_ups

_encode = msgspec.json.Encoder().encode
# Message, kind, number, and whether by a machine
Key = tuple[int, str, int | None, bool]
_INSERT = (
    "INSERT INTO event (account_id, contact_id, event, data, resource_uid, resource_name, resource_url, test, "
    "generated, quiet, chain_depth, ip, user_agent, browser, os, device_type, referrer, utm_source, utm_medium, "
    "utm_term, utm_content, utm_campaign, created_at, updated_at) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, 1, 0, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id"
)


def told(messages: Iterable[int]) -> set[Key]:
    """Return what has an event already."""
    ids = ",".join(map(str, messages))
    asked = "SELECT message_id, kind, number, verdict = 'machine' FROM hit WHERE event_id IS NOT NULL AND message_id IN"
    return {(row[0], row[1], row[2], bool(row[3])) for row in rows(f"{asked} ({ids})")} if ids else set()


class Told(NamedTuple):
    """A hit that is told by an event."""

    found: Found
    seen: Seen
    referrer: str | None
    verdict: Verdict


def tell(hits: Sequence[Told]) -> list[int]:
    """Write the events of hits and answer their ids."""
    if not hits:
        return []
    after_commit(lambda: wake_ups.ring("flows"))
    now = clock.now_ms()
    names: dict[tuple[int | None, int | None], str | None] = {}
    return [int(row[0]) for row in connection().executemany(_INSERT, [_row(one, names, now) for one in hits])]


def _row(one: Told, names: dict[tuple[int | None, int | None], str | None], now: int) -> tuple[Any, ...]:
    found, seen, referrer, verdict = one
    data: dict[str, Any] = {
        "message_id": found.message_id, "campaign_id": found.campaign_id, "flow_id": found.flow_id,
        "step_id": found.step_id, "reason": verdict.reason, "verdict": verdict.verdict,
    }  # fmt: skip
    if seen.number is not None:
        data["link"] = seen.number
    source = (found.campaign_id, found.flow_id)
    if source not in names:
        names[source] = _source_name(found)
    return (
        found.account_id, found.contact_id, f"{found.channel}_{'opened' if seen.kind == 'open' else 'clicked'}",
        _encode(data).decode(), f"message:{found.message_id}", names[source], found.url, found.test,
        found.chain_depth, seen.ip, seen.agent, *agents.device(seen.agent), referrer, *utm.of(found.url), seen.at, now,
    )  # fmt: skip


def _source_name(found: Found) -> str | None:
    table, number = ("campaign", found.campaign_id) if found.campaign_id is not None else ("flow", found.flow_id)
    return scalar(f"SELECT name FROM {table} WHERE id = ?", (number,)) if number is not None else None
