"""What opens and clicks by people come to: on the message, its contact, and the address they prove to be somebody's.

`opened_at` and `clicked_at` are of the first one that no machine made; a click is an open too, for who follows a link
has seen the mail, with or without its pictures. A contact's counts are of messages: opens and clicks never outnumber
what was sent. Of SMS there are no opens, and a contact's counts, which are of mail, leave them out.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from appliance.core import clock, wake_ups
from appliance.events import agents, submit
from appliance.sending.messages.link_targets import Found
from appliance.storage.open import connection, rows, scalar
from appliance.storage.work import after_commit
from appliance.tracking.bot_detection import HUMAN, Seen, Verdict

_MESSAGE = "UPDATE message SET opened_at = ?, clicked_at = ?, updated_at = ? WHERE id = ?"
_CONTACT = (
    "UPDATE contact SET email_open_count = email_open_count + ?1, email_click_count = email_click_count + ?2, "
    "email_last_opened_at = max(coalesce(email_last_opened_at, 0), ?3), "
    "email_last_clicked_at = CASE WHEN ?4 THEN max(coalesce(email_last_clicked_at, 0), ?4) "
    "ELSE email_last_clicked_at END, last_interacted_at = max(coalesce(last_interacted_at, 0), ?3) "
    "WHERE id = ?5"
)
_ALIVE = "UPDATE contact SET last_interacted_at = max(coalesce(last_interacted_at, 0), ?) WHERE id = ?"
_VERIFIED = (
    "UPDATE channel SET verified_at = ?, updated_at = ? WHERE account_id = ? AND kind = ? AND key = ? "
    "AND contact_id = ? AND verified_at IS NULL"
)


def now() -> int:
    """Return the moment, in milliseconds."""
    return clock.now_ms()


class _Message:
    """What is known of a message, and what is to be written."""

    __slots__ = ("clicked_at", "contact_id", "key", "opened_at")

    def __init__(self, opened_at: int | None, clicked_at: int | None, contact_id: int | None, key: str | None) -> None:
        self.opened_at, self.clicked_at, self.contact_id, self.key = opened_at, clicked_at, contact_id, key


def count(counted: Sequence[tuple[Found, Seen, Verdict]]) -> None:
    """Count opens and clicks that no machine made."""
    if not counted:
        return
    ids = ",".join({str(found.message_id) for found, _, _ in counted})
    asked = "SELECT id, opened_at, clicked_at, contact_id, recipient_key FROM message WHERE id IN"
    messages = {row[0]: _Message(*row[1:]) for row in rows(f"{asked} ({ids})")}
    moment, here = now(), connection()
    marked: set[int] = set()
    contacts: list[tuple[Any, ...]] = []
    alive: list[tuple[Any, ...]] = []
    verified: list[tuple[Any, ...]] = []
    for found, seen, verdict in counted:
        message = messages[found.message_id]
        clicked, is_mail = seen.kind == "click", found.channel == "email"
        is_first_open, is_first_click = is_mail and message.opened_at is None, clicked and message.clicked_at is None
        if is_first_open:
            message.opened_at = seen.at
        if is_first_click:
            message.clicked_at = seen.at
        if is_first_open or is_first_click:
            marked.add(found.message_id)
        if found.test or message.contact_id is None:
            continue
        if is_mail:
            contacts.append((is_first_open, is_first_click, seen.at, seen.at if clicked else None, message.contact_id))
        else:
            alive.append((seen.at, message.contact_id))
        if clicked and verdict.verdict == HUMAN:
            kind = "email" if is_mail else "phone"
            verified.append((seen.at, moment, found.account_id, kind, message.key, message.contact_id))
    written = [(messages[one].opened_at, messages[one].clicked_at, moment, one) for one in sorted(marked)]
    here.executemany(_MESSAGE, written)
    here.executemany(_CONTACT, contacts)
    here.executemany(_ALIVE, alive)
    here.executemany(_VERIFIED, verified)


# The events of opens and clicks: what was asked for, by whom as far as we know, and why we think so.

_encode = msgspec.json.Encoder().encode
# Message, kind, number, and whether by a machine
Key = tuple[int, str, int | None, bool]
_INSERT_EVENT = (
    "INSERT INTO event (account_id, contact_id, event, data, resource_uid, resource_name, resource_url, test, "
    "generated, quiet, chain_depth, ip, user_agent, browser, os, device_type, referrer, utm_source, utm_medium, "
    "utm_term, utm_content, utm_campaign, created_at, updated_at) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, 1, 0, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id"
)


def events_told(messages: Iterable[int]) -> set[Key]:
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


def tell_hits(hits: Sequence[Told]) -> list[int]:
    """Write the events of hits and answer their ids."""
    if not hits:
        return []
    after_commit(lambda: wake_ups.ring("flows"))
    now = clock.now_ms()
    names: dict[tuple[int | None, int | None], str | None] = {}
    return [
        int(row[0]) for row in connection().executemany(_INSERT_EVENT, [_event_row(one, names, now) for one in hits])
    ]


def _event_row(one: Told, names: dict[tuple[int | None, int | None], str | None], now: int) -> tuple[Any, ...]:
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
        found.chain_depth, seen.ip, seen.agent, *agents.device(seen.agent), referrer, *submit.utm_of(found.url),
        seen.at, now,
    )  # fmt: skip


def _source_name(found: Found) -> str | None:
    table, number = ("campaign", found.campaign_id) if found.campaign_id is not None else ("flow", found.flow_id)
    return scalar(f"SELECT name FROM {table} WHERE id = ?", (number,)) if number is not None else None
