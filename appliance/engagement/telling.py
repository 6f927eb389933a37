"""The events of opens and clicks: what was asked for, by whom as far as we know, and why we think so."""

from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec

from appliance import clock
from appliance.db.open import connection, rows, scalar
from appliance.engagement import agents
from appliance.engagement.robots import Seen, Verdict
from appliance.messages.targets import Found

UTM = ("utm_source", "utm_medium", "utm_term", "utm_content", "utm_campaign")
_LONGEST = 255
# Message, kind, number, and whether by a machine
Key = tuple[int, str, int | None, bool]
_INSERT = (
    "INSERT INTO event (account_id, contact_id, event, data, resource_uid, resource_name, resource_url, test, "
    "generated, chain_depth, ip, user_agent, browser, os, device_type, referrer, utm_source, utm_medium, utm_term, "
    "utm_content, utm_campaign, created_at, updated_at) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, 1, 0, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id"
)


def told(messages: Iterable[int]) -> set[Key]:
    """Answer what has an event already."""
    ids = ",".join(map(str, messages))
    asked = "SELECT message_id, kind, number, verdict = 'machine' FROM hit WHERE event_id NOT NULL AND message_id IN"
    return {(row[0], row[1], row[2], bool(row[3])) for row in rows(f"{asked} ({ids})")} if ids else set()


def tell(found: Found, seen: Seen, referrer: str | None, verdict: Verdict) -> int:
    """Write the event of a hit and answer its id."""
    data: dict[str, Any] = {
        "message_id": found.message_id, "campaign_id": found.campaign_id, "flow_id": found.flow_id,
        "step_id": found.step_id, "reason": verdict.reason, "verdict": verdict.verdict,
    }  # fmt: skip
    if seen.number is not None:
        data["link"] = seen.number
    device = agents.device(seen.agent)
    event = "email_opened" if seen.kind == "open" else "email_clicked"
    return int(
        connection().execute(
            _INSERT,
            (
                found.account_id, found.contact_id, event, msgspec.json.encode(data).decode(),
                f"message:{found.message_id}", _source_name(found), found.url, found.test, seen.ip, seen.agent,
                *device, referrer, *utm(found.url), seen.at, clock.now_ms(),
            ),
        ).fetchall()[0][0]
    )  # fmt: skip


def utm(url: str | None) -> tuple[str | None, ...]:
    """Answer what an address says of the campaign it is part of."""
    if not url or "utm_" not in url:
        return (None,) * len(UTM)
    said: dict[str, str] = {}
    for name, value in parse_qsl(urlsplit(url).query, errors="replace")[:100]:
        said.setdefault(name, value[:_LONGEST])
    return tuple(said.get(name) for name in UTM)


def _source_name(found: Found) -> str | None:
    table, number = ("campaign", found.campaign_id) if found.campaign_id is not None else ("flow", found.flow_id)
    return scalar(f"SELECT name FROM {table} WHERE id = ?", (number,)) if number is not None else None
