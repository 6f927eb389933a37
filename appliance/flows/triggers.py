"""What starts a flow, and for whom: read from a request, and asked of events as one SQL condition."""

import re
import threading
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from msgspec import UNSET, Struct, UnsetType

from appliance.audience.contacts import lists, tags
from appliance.audience.filters import read as filters_read
from appliance.audience.filters.scope import Place, Scope
from appliance.audience.segments import people
from appliance.core import clock, wake_ups
from appliance.core.errors import Faults, Invalid, Unavailable
from appliance.core.fields import Data, EventName, Id, given, read_sound
from appliance.flows import date_fields
from appliance.sending.sms import keywords
from appliance.settings import config
from appliance.storage import work
from appliance.storage.models import ContactList, Segment, Trigger
from appliance.storage.open import rows, run, scalar
from appliance.storage.work import after_commit, writing

MANUAL, DATE = "manual", "date_reached"
SEGMENT_EVENTS = frozenset({"segment_enter", "segment_exit"})
LIST_EVENTS = frozenset({"list_add", "list_remove"})
TAG_EVENTS = frozenset({"tag_add", "tag_remove"})
# What happens to the same person again without meaning anything new
_ONCE = frozenset({"contact_add", "list_add", "segment_enter"})
AT = "09:00"
_MIRROR = "SELECT segment_id FROM contact_list WHERE id = ?"
_AT = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]")
_MAX_GAP_SECONDS = 10 * 366 * 86_400
_MAX_DAYS = 3660
_MAX_KEYWORDS, _MAX_KEYWORD_CHARACTERS = 100, 160
# How the triggering event is called in SQL: `e` is the alias of the events that a filter looks for
EVENT = "happened"


class TriggerWrite(Struct, forbid_unknown_fields=True):
    """What starts a flow; an unknown key here would change who gets mail, so it is refused."""

    event: EventName | None | UnsetType = UNSET
    segment_id: Id | None | UnsetType = UNSET
    contact_list_id: Id | None | UnsetType = UNSET
    data: Data | None | UnsetType = UNSET


class Start(NamedTuple):
    """What starts a flow, as it is stored."""

    event: str = MANUAL
    segment_id: int | None = None
    contact_list_id: int | None = None
    data: Mapping[str, Any] = {}


def of(row: Trigger) -> Start:
    """Return what a stored trigger says."""
    return Start(row.event, row.segment_id, row.contact_list_id, row.data)


def check(account_id: int, raw: Any, faults: Faults, path: str = "trigger", before: Start | None = None) -> Start:
    """Read what starts a flow; notes every fault at its path.

    Absent keys keep what was `before`, null clears. A segment alone means entering it.
    """
    read = read_sound(TriggerWrite, raw, path)
    faults.merge(read.faults.fields)
    if read.value is UNSET:
        return before or Start()
    sent = given(read.value)
    kept = (before or Start())._replace(**{key: value for key, value in sent.items() if key.endswith("_id")})
    if "data" in sent:
        kept = kept._replace(data=sent["data"] or {})
    if "event" in sent or before is None or (before.event == MANUAL and sent.get("segment_id")):
        kept = kept._replace(event=sent.get("event") or ("segment_enter" if kept.segment_id else MANUAL))
    for key, table in (("segment_id", Segment), ("contact_list_id", ContactList)):
        number = sent.get(key)
        if number and not table.select().where(table.account == account_id, table.id == number).exists():
            faults.add(f"{path}.{key}", "must exist")
    if "data" in sent:
        _check_data(account_id, kept.data, faults, f"{path}.data")
    return kept


def lacks(start: Start) -> list[tuple[str, str]]:
    """Return what keeps a flow with this trigger from going live: (key, words)."""
    if start.event == MANUAL:
        return [("event", "names no event that starts it: `manual` is none")]
    if start.event in SEGMENT_EVENTS and start.segment_id is None:
        return [("segment_id", "can't be blank: people come into a segment or leave it")]
    if start.event == DATE and not start.data.get("path"):
        return [("data.path", "can't be blank: it names the field of people with the date")]
    if start.event in LIST_EVENTS and scalar(_MIRROR, (start.contact_list_id,)):
        # Nobody joins or leaves it: its people follow from the segment
        return [("contact_list_id", lists.VIEW)]
    return [*_taken(start)]


def _taken(start: Start) -> Iterator[tuple[str, str]]:
    """Return the keywords that no flow hears, because they are acted on: STOP, START, HELP and their relatives."""
    if start.event not in ("message", "keyword"):
        return
    for index, word in enumerate(start.data.get("keywords") or []):
        if keywords.read(word, config.current().sms.stop_words).meaning in ("stop", "start", "help", "refusal"):
            yield f"data.keywords[{index}]", "is reserved"


def faults_of(account_id: int, start: Start) -> list[tuple[str, str]]:
    """Return what is wrong by now with conditions that were right when they were written: (key, words)."""
    try:
        filters_read.filters(start.data.get("where") or [], scope(account_id, writing=True), "data.where")
    except Invalid as invalid:
        return [(path, words) for path, all_words in invalid.fields.items() for words in all_words]
    return []


def opened(flow_id: int) -> None:
    """Let a flow that goes live begin with what happens from now on, not with what nobody has looked at yet."""
    writing()
    run("UPDATE flow SET live_from = (SELECT coalesce(max(id), 0) FROM event) WHERE id = ?", (flow_id,))
    run("UPDATE trigger SET scanned = NULL, updated_at = ? WHERE flow_id = ?", (clock.now_ms(), flow_id))
    after_commit(lambda: wake_ups.ring("flows"))
    after_commit(lambda: wake_ups.ring("segments"))


def frequency(start: Start) -> str | int:
    """Return how often one person may start: `once`, `every_time`, or the seconds between two starts."""
    said = start.data.get("frequency")
    if isinstance(said, dict):
        return int(said["min_gap_seconds"])
    return said or ("once" if start.event in _ONCE else "every_time")


def scope(account_id: int, writing: bool = False) -> Scope:
    """Return the scope of a trigger's conditions: those of a branch, asked of many events at once."""
    here = people.scope(account_id, writing)
    return here._replace(place=Place.SPLIT, document=f"{EVENT}.data", start=f"{EVENT}.created_at")


def _check_data(account_id: int, data: Mapping[str, Any], faults: Faults, path: str) -> None:
    """Note what is wrong with the keys that mean something to us; others are kept as they are."""
    for key, look in _LOOKS.items():
        if data.get(key) is not None:
            words = look(data[key])
            if words:
                faults.add(f"{path}.{key}", words)
    if isinstance(data.get("frequency"), dict):
        _check_gap(data["frequency"], faults, f"{path}.frequency")
    _check_keywords(data.get("keywords"), faults, f"{path}.keywords")
    if data.get("where") is not None:
        try:
            filters_read.filters(data["where"], scope(account_id, writing=True), f"{path}.where")
        except Invalid as invalid:
            faults.merge(invalid.fields)


def _check_gap(said: dict[str, Any], faults: Faults, path: str) -> None:
    for key in said:
        if key != "min_gap_seconds":
            faults.add(f"{path}.{key[:100]}", "is not a known field")
    words = _bounded(1, _MAX_GAP_SECONDS)(said.get("min_gap_seconds"))
    if words:
        faults.add(f"{path}.min_gap_seconds", words)


def _check_keywords(said: Any, faults: Faults, path: str) -> None:
    if said is None:
        return
    if not isinstance(said, list):
        faults.add(path, "is invalid")
    elif len(said) > _MAX_KEYWORDS:
        faults.add(path, f"is too long (maximum is {_MAX_KEYWORDS} entries)")
    else:
        for index, word in enumerate(said):
            if not isinstance(word, str):
                faults.add(f"{path}[{index}]", "is invalid")
            elif not word.strip():
                faults.add(f"{path}[{index}]", "can't be blank")
            elif len(word) > _MAX_KEYWORD_CHARACTERS:
                faults.add(f"{path}[{index}]", f"is too long (maximum is {_MAX_KEYWORD_CHARACTERS} characters)")


def _bounded(least: int, most: int) -> Any:
    def look(value: Any) -> str | None:
        if value is None:
            return "can't be blank"
        if isinstance(value, bool) or not isinstance(value, int):
            return "is not a number"
        if value < least:
            return f"must be greater than or equal to {least}"
        return None if value <= most else f"must be less than or equal to {most}"

    return look


def _is_frequency(value: Any) -> str | None:
    if isinstance(value, dict):
        return None
    return None if value in ("once", "every_time") else "is not included in the list"


def _is_path(value: Any) -> str | None:
    return None if isinstance(value, str) and date_fields.source(value) is not None else "is invalid"


_LOOKS = {
    "frequency": _is_frequency, "tag": tags.fault, "offset_days": _bounded(-_MAX_DAYS, _MAX_DAYS),
    "yearly": lambda value: None if isinstance(value, bool) else "is invalid",
    "at": lambda value: None if isinstance(value, str) and _AT.fullmatch(value) else "is invalid",
    "path": _is_path,
}  # fmt: skip


# Forgets the triggers that started nothing, as old as events may be: somebody inside may set one off every minute.

_CHUNK = 400
_PAUSE_SECONDS = 0.005
_OLD = (
    f"DELETE FROM run WHERE id IN (SELECT id FROM run INDEXED BY run_ended WHERE flow_id = ? AND status = 'ignored' "
    f"AND created_at < ? LIMIT {_CHUNK})"
)


def forget_ignored(stopping: threading.Event) -> None:
    """Delete what is older than `events.keep`, if that is bounded; in small transactions that let others go first."""
    seconds = config.seconds(config.current().events.keep)
    if not seconds:
        return
    before = clock.now_ms() - int(seconds * 1000)
    for (flow_id,) in rows("SELECT id FROM flow WHERE hidden = 0"):
        try:
            while not stopping.is_set() and work.write(_drop, flow_id, before) == _CHUNK:
                stopping.wait(_PAUSE_SECONDS)
        except Unavailable:
            if work.is_stopped():
                return
            raise


def _drop(flow_id: int, before: int) -> int:
    writing()
    return run(_OLD, (flow_id, before))
