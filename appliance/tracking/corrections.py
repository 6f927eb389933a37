"""Takes back what was believed: later hits show that earlier ones of a message were a machine's, or were not."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from appliance.core import clock
from appliance.sending.messages.link_targets import Found
from appliance.storage.open import connection, fetch_one, rows, run, scalar
from appliance.tracking import counters
from appliance.tracking.bot_detection import MACHINE, Seen, Verdict
from appliance.tracking.counters import Told

# What makes a person's last sign of life, beside opens and clicks
_SIGNS = "('email_replied', 'form_submitted', 'double_opt_in_confirmed', 'message', 'keyword')"
_LAST = (
    "SELECT max(CASE WHEN h.kind = 'click' AND m.channel = 'email' THEN h.at END), "
    "max(CASE WHEN m.channel = 'email' THEN h.at END), max(h.at) FROM hit h JOIN message m ON m.id = h.message_id "
    "WHERE m.contact_id = ? AND m.test = 0 AND h.verdict <> 'machine'"
)
_ALIVE = f"SELECT max(created_at) FROM event WHERE contact_id = ? AND (generated = 0 OR event IN {_SIGNS})"


class Kept(NamedTuple):
    """A hit that is stored."""

    id: int
    seen: Seen
    verdict: Verdict | None
    event_id: int | None


class Change(NamedTuple):
    """A stored hit and what we think of it now."""

    hit: Kept
    verdict: Verdict


def kept(row: tuple[Any, ...]) -> Kept:
    """Read a stored hit: id, message, at, kind, number, method, ip, user_agent, verdict, reason, event_id."""
    return Kept(row[0], Seen(*row[2:8]), None if row[8] is None else Verdict(row[8], row[9]), row[10])


def changes(judged: Iterable[tuple[Kept, Verdict]]) -> list[Change]:
    """Return the hits that are judged otherwise by now."""
    return [Change(hit, verdict) for hit, verdict in judged if hit.verdict != verdict]


def correct(found: Found, changed: list[Change]) -> None:
    """Write other verdicts with all that followed from the first ones: events, the message's marks, its contact."""
    here = connection()
    for hit, verdict in changed:
        here.execute("UPDATE hit SET verdict = ?, reason = ? WHERE id = ?", (verdict.verdict, verdict.reason, hit.id))
        if hit.event_id is not None:
            here.execute(
                "UPDATE event SET data = json_set(data, '$.verdict', ?, '$.reason', ?), updated_at = ? WHERE id = ?",
                (verdict.verdict, verdict.reason, clock.now_ms(), hit.event_id),
            )
    if any(_was_machine(hit) != (verdict.verdict == MACHINE) for hit, verdict in changed):
        _tell_others(found)
        _settle(found, [hit.seen.at for hit, verdict in changed if verdict.verdict == MACHINE])


def _was_machine(hit: Kept) -> bool:
    return hit.verdict is not None and hit.verdict.verdict == MACHINE


def _tell_others(found: Found) -> None:
    """Tell of what is now the first of its sort and was not, because another was told instead."""
    told = counters.events_told([found.message_id])
    asked = (
        "SELECT id, message_id, at, kind, number, method, ip, user_agent, verdict, reason, event_id, referrer "
        "FROM hit WHERE message_id = ? AND event_id IS NULL AND verdict IS NOT NULL ORDER BY at, id LIMIT 1000"
    )
    for row in rows(asked, (found.message_id,)):
        hit = kept(row)
        key = (found.message_id, hit.seen.kind, hit.seen.number, _was_machine(hit))
        if key not in told and hit.verdict is not None:
            told.add(key)
            (event,) = counters.tell_hits([Told(found._replace(url=_led(key)), hit.seen, row[11], hit.verdict)])
            run("UPDATE hit SET event_id = ? WHERE id = ?", (event, hit.id))


def _led(key: counters.Key) -> str | None:
    """Return where a link led, as another event of it says."""
    found = scalar(
        "SELECT e.resource_url FROM hit h JOIN event e ON e.id = h.event_id "
        "WHERE h.message_id = ? AND h.kind = ? AND h.number IS NOT DISTINCT FROM ? AND h.event_id IS NOT NULL LIMIT 1",
        key[:3],
    )
    return str(found) if found is not None else None


def _settle(found: Found, taken_back: list[int]) -> None:
    """Make the message say what its hits say, and its contact with it."""
    before = fetch_one("SELECT opened_at, clicked_at, contact_id FROM message WHERE id = ?", (found.message_id,))
    if before is None:
        return
    opened, clicked = fetch_one(
        "SELECT min(at), min(CASE WHEN kind = 'click' THEN at END) FROM hit WHERE message_id = ? "
        "AND verdict <> 'machine'",
        (found.message_id,),
    ) or (None, None)
    is_mail = found.channel == "email"
    if not is_mail:
        opened = None
    now = clock.now_ms()
    run(
        "UPDATE message SET opened_at = ?, clicked_at = ?, updated_at = ? WHERE id = ?",
        (opened, clicked, now, found.message_id),
    )
    contact_id = before[2]
    if found.test or contact_id is None:
        return
    more_opens = (opened is not None) - (before[0] is not None)
    more_clicks = (clicked is not None) - (before[1] is not None) if is_mail else 0
    last_click, last_open, last_hit = fetch_one(_LAST, (contact_id,)) or (None, None, None)
    alive = scalar(_ALIVE, (contact_id,))
    run(
        "UPDATE contact SET email_open_count = max(0, email_open_count + ?), "
        "email_click_count = max(0, email_click_count + ?), email_last_opened_at = ?, "
        "email_last_clicked_at = ?, last_interacted_at = nullif(max(coalesce(?, 0), coalesce(?, 0)), 0) "
        "WHERE id = ?",
        (more_opens, more_clicks, last_open, last_click, last_hit, alive, contact_id),
    )
    for moment in taken_back:
        # An address that this very click had verified
        run(
            "UPDATE channel SET verified_at = NULL, updated_at = ? WHERE contact_id = ? AND verified_at = ?",
            (now, contact_id, moment),
        )
