"""Triggers of flows: parsing and checking them, and matching events against them with one SQL condition."""

import json
import logging
import math
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import UNSET, Struct, UnsetType

from appliance.audience import lists
from appliance.audience.contacts import write
from appliance.audience.filters import compiler, fields
from appliance.audience.filters.fields import Binder, Compiled, FilterPlace, Scope
from appliance.audience.segments import members
from appliance.audience.segments.condition_budget import ConditionsTooSlow
from appliance.core import clock, signals
from appliance.core.errors import Faults, Invalid, Unavailable
from appliance.core.i18n import gettext
from appliance.core.validation import Data, EventName, Id, read_partial, sent_fields
from appliance.events import log as events_log
from appliance.flows.condition_limits import Budget
from appliance.flows.entry_caps import MAX_ENTRIES
from appliance.sending.sms import keywords
from appliance.settings import config
from appliance.storage import transactions
from appliance.storage.database import fold_case, rows, run, scalar
from appliance.storage.disk_guard import to_storage_error
from appliance.storage.models import ContactList, Segment, Trigger
from appliance.storage.transactions import after_commit, require_write_transaction

log = logging.getLogger("campanero.flows")

_DATA_PREFIXES = ("contact_data.", "data.")


class DateSource(NamedTuple):
    """SQL on contact `c` that returns a date: Unix milliseconds if `is_moment`, else text from custom data."""

    sql: str
    is_moment: bool


def find_date_source(path: str) -> DateSource | None:
    """Return the source of the date at a path, such as `created_at` or `data.birthday`; None for an invalid path."""
    filter_field = fields.FIELDS_BY_NAME.get(path)
    if filter_field is not None and filter_field.type == "time" and filter_field.operand.value.startswith("c."):
        return DateSource(filter_field.operand.value, True)
    for prefix in _DATA_PREFIXES:
        path = path.removeprefix(prefix)
    json_path = fields.json_path(path)
    return None if json_path is None else DateSource(f"json_extract(c.data, {json_path})", False)


MANUAL, DATE = "manual", "date_reached"
SEGMENT_EVENTS = frozenset({"segment_enter", "segment_exit"})
LIST_EVENTS = frozenset({"list_add", "list_remove"})
TAG_EVENTS = frozenset({"tag_add", "tag_remove"})
# Events that by default start a flow only once for each contact, because a repetition has no new meaning
_ONCE_BY_DEFAULT = frozenset({"contact_add", "list_add", "segment_enter"})
DEFAULT_TIME_OF_DAY = "09:00"
_SELECT_MIRRORED_SEGMENT = "SELECT segment_id FROM contact_list WHERE id = ?"
TIME_OF_DAY = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]")
# The allowed range for the share of contacts in a holdout group
MIN_HOLDOUT, MAX_HOLDOUT = 0.01, 0.5
# The reason of an entry that was refused because of the holdout group
HELD_OUT = "held_out"
# The keys of a trigger's data that determine how often and how many contacts enter, not which ones
_ENTRY_KEYS = ("frequency", "max_per_hour", "holdout", "respect_control_group")
_MAX_GAP_SECONDS = 10 * 366 * 86_400
MAX_OFFSET_DAYS = 3660
_MAX_KEYWORDS, _MAX_KEYWORD_CHARACTERS = 100, 160
# The alias of the triggering event in SQL; `e` is the alias of the events that a filter looks for.
EVENT_ALIAS = "happened"


class TriggerWrite(Struct, forbid_unknown_fields=True):
    """The trigger of a request; unknown keys are rejected, because a misspelt key would change who gets messages."""

    event: EventName | None | UnsetType = UNSET
    segment_id: Id | None | UnsetType = UNSET
    contact_list_id: Id | None | UnsetType = UNSET
    data: Data | None | UnsetType = UNSET


class TriggerSpec(NamedTuple):
    """A stored trigger; `data` has its conditions: `frequency`, `where`, `keywords`, `tag`, and a date's keys."""

    event: str = MANUAL
    segment_id: int | None = None
    contact_list_id: int | None = None
    data: Mapping[str, Any] = {}


def get_spec(row: Trigger) -> TriggerSpec:
    """Return the trigger that a `Trigger` row stores."""
    return TriggerSpec(row.event, row.segment_id, row.contact_list_id, row.data)


def parse_trigger(
    account_id: int, raw: Any, faults: Faults, path: str = "trigger", before: TriggerSpec | None = None
) -> TriggerSpec:
    """Parse the trigger of a request and add every error at its path below `path`.

    Absent keys keep the values of `before`, and null clears a value. Without an event, a segment means that contacts
    enter the flow when they enter the segment.
    """
    parsed = read_partial(TriggerWrite, raw, path)
    faults.merge(parsed.faults.fields)
    if parsed.value is UNSET:
        return before or TriggerSpec()
    sent_keys = sent_fields(parsed.value)
    spec = (before or TriggerSpec())._replace(**{key: value for key, value in sent_keys.items() if key.endswith("_id")})
    if "data" in sent_keys:
        spec = spec._replace(data=sent_keys["data"] or {})
    if "event" in sent_keys or before is None or (before.event == MANUAL and sent_keys.get("segment_id")):
        spec = spec._replace(event=sent_keys.get("event") or ("segment_enter" if spec.segment_id else MANUAL))
    for key, table in (("segment_id", Segment), ("contact_list_id", ContactList)):
        row_id = sent_keys.get(key)
        if row_id and not table.select().where(table.account == account_id, table.id == row_id).exists():
            faults.add(f"{path}.{key}", gettext("must exist"))
    if "data" in sent_keys:
        _check_data(account_id, spec.data, faults, f"{path}.data")
    return spec


def uses_contact_data(spec: TriggerSpec) -> bool:
    """Return whether a trigger has a condition on the contact, so that the runs of its flow reveal contact data.

    An event about a list, segment or tag is not such a condition, because it only decides when the flow starts.
    """
    return (
        spec.event == DATE
        or (spec.segment_id is not None and spec.event not in SEGMENT_EVENTS)
        or (spec.contact_list_id is not None and spec.event not in LIST_EVENTS)
        or (bool(spec.data.get("tag")) and spec.event not in TAG_EVENTS)
        or bool(spec.data.get("holdout_event"))
        or compiler.uses_contact_data(spec.data.get("where"))
    )


def uses_event_data(spec: TriggerSpec) -> bool:
    """Return whether a trigger has a condition on the data of events, so that the runs of its flow reveal that data."""
    return bool(spec.data.get("keywords")) or compiler.uses_event_data(spec.data.get("where"))


def has_same_conditions(first: TriggerSpec, other: TriggerSpec) -> bool:
    """Return whether two triggers have the same conditions; the frequency and limits of entries may differ."""
    without_frequency = [
        spec._replace(data={key: value for key, value in spec.data.items() if key not in _ENTRY_KEYS})
        for spec in (first, other)
    ]
    return without_frequency[0] == without_frequency[1]


def list_missing(spec: TriggerSpec) -> list[tuple[str, str]]:
    """Return (key, message) for each error in a trigger that keeps its flow from being activated.

    Errors of the filters are returned by `list_broken_conditions`.
    """
    if spec.event == MANUAL:
        return [("event", gettext("names no event that starts the flow: `manual` is none"))]
    if spec.event in SEGMENT_EVENTS and spec.segment_id is None:
        return [("segment_id", gettext("can't be blank: contacts enter a segment or leave it"))]
    if spec.event == DATE and not spec.data.get("path"):
        return [("data.path", gettext("can't be blank: it names the custom field with the date"))]
    if spec.event in LIST_EVENTS and scalar(_SELECT_MIRRORED_SEGMENT, (spec.contact_list_id,)):
        # Events of a mirror list do not occur, because its segment decides about its members.
        return [("contact_list_id", gettext(lists.MIRROR_MESSAGE))]
    return [*_list_reserved_keywords(spec)]


def _list_reserved_keywords(spec: TriggerSpec) -> Iterator[tuple[str, str]]:
    """Yield (key, message) for each keyword that the service itself handles: STOP, START, HELP and their synonyms."""
    if spec.event not in ("message", "keyword"):
        return
    for index, word in enumerate(spec.data.get("keywords") or []):
        if keywords.match_keyword(word, config.current().sms.stop_words).meaning in (
            "stop",
            "start",
            "help",
            "refusal",
        ):
            yield f"data.keywords[{index}]", "is reserved"


def list_broken_conditions(account_id: int, spec: TriggerSpec) -> list[tuple[str, str]]:
    """Return (key, message) for each error of the trigger's filters, such as a segment that was deleted."""
    try:
        compiler.parse_filters(
            spec.data.get("where") or [], get_condition_scope(account_id, writing=True), "data.where"
        )
    except Invalid as invalid:
        return [(path, message) for path, messages in invalid.fields.items() for message in messages]
    return []


def restart_listening(flow_id: int) -> None:
    """Allow a flow to be started only by events after this transaction, and by dates that become due after it."""
    require_write_transaction()
    run("UPDATE flow SET live_from = (SELECT coalesce(max(id), 0) FROM event) WHERE id = ?", (flow_id,))
    run("UPDATE trigger SET scanned = NULL, updated_at = ? WHERE flow_id = ?", (clock.now_ms(), flow_id))
    after_commit(lambda: signals.wake("flows"))
    after_commit(lambda: signals.wake("segments"))


def get_frequency(spec: TriggerSpec) -> str | int:
    """Return how often one contact may enter: `once`, `every_time`, or the minimum seconds between two entries."""
    frequency = spec.data.get("frequency")
    if isinstance(frequency, dict):
        return int(frequency["min_gap_seconds"])
    return frequency or ("once" if spec.event in _ONCE_BY_DEFAULT else "every_time")


def get_condition_scope(account_id: int, writing: bool = False) -> Scope:
    """Return the scope of a trigger's filters, with the event's data and time as SQL columns.

    With `writing`, ids in the filters must exist.
    """
    scope = members.build_scope(account_id, writing)
    return scope._replace(place=FilterPlace.SPLIT, document=f"{EVENT_ALIAS}.data", start=f"{EVENT_ALIAS}.created_at")


def _check_data(account_id: int, data: Mapping[str, Any], faults: Faults, path: str) -> None:
    """Add the errors of known keys of a trigger's data; unknown keys are stored without a check."""
    for key, check in _DATA_CHECKS.items():
        if data.get(key) is not None:
            error = check(data[key])
            if error:
                faults.add(f"{path}.{key}", error)
    if isinstance(data.get("frequency"), dict):
        _check_gap(data["frequency"], faults, f"{path}.frequency")
    _check_keywords(data.get("keywords"), faults, f"{path}.keywords")
    if data.get("where") is not None:
        try:
            compiler.parse_filters(data["where"], get_condition_scope(account_id, writing=True), f"{path}.where")
        except Invalid as invalid:
            faults.merge(invalid.fields)


def _check_gap(gap: dict[str, Any], faults: Faults, path: str) -> None:
    for key in gap:
        if key != "min_gap_seconds":
            faults.add(f"{path}.{key[:100]}", gettext("is not a known field"))
    error = check_integer(1, _MAX_GAP_SECONDS)(gap.get("min_gap_seconds"))
    if error:
        faults.add(f"{path}.min_gap_seconds", error)


def _check_keywords(keyword_list: Any, faults: Faults, path: str) -> None:
    if keyword_list is None:
        return
    if not isinstance(keyword_list, list):
        faults.add(path, gettext("is invalid"))
    elif len(keyword_list) > _MAX_KEYWORDS:
        faults.add(path, gettext("is too long (maximum is %(limit)s entries)", limit=_MAX_KEYWORDS))
    else:
        for index, word in enumerate(keyword_list):
            if not isinstance(word, str):
                faults.add(f"{path}[{index}]", gettext("is invalid"))
            elif not word.strip():
                faults.add(f"{path}[{index}]", gettext("can't be blank"))
            elif len(word) > _MAX_KEYWORD_CHARACTERS:
                faults.add(
                    f"{path}[{index}]",
                    gettext("is too long (maximum is %(limit)s characters)", limit=_MAX_KEYWORD_CHARACTERS),
                )


def check_integer(minimum: int, maximum: int) -> Callable[[Any], str | None]:
    """Return a function that returns an error for a value that is not an integer in the range, else None."""

    def check(value: Any) -> str | None:
        if value is None:
            return "can't be blank"
        if isinstance(value, bool) or not isinstance(value, int):
            return "is not a number"
        if value < minimum:
            return f"must be greater than or equal to {minimum}"
        return None if value <= maximum else f"must be less than or equal to {maximum}"

    return check


def _check_frequency(value: Any) -> str | None:
    if isinstance(value, dict):
        return None
    return None if value in ("once", "every_time") else "is not included in the list"


def _check_path(value: Any) -> str | None:
    return None if isinstance(value, str) and find_date_source(value) is not None else "is invalid"


def _check_holdout(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return "is not a number"
    if value < MIN_HOLDOUT:
        return f"must be greater than or equal to {MIN_HOLDOUT}"
    return None if value <= MAX_HOLDOUT else f"must be less than or equal to {MAX_HOLDOUT}"


def _check_event_name(value: Any) -> str | None:
    if not isinstance(value, str):
        return "is invalid"
    return None if value in events_log.RESERVED_NAMES else events_log.find_name_error(value)


_DATA_CHECKS: dict[str, Callable[[Any], str | None]] = {
    "frequency": _check_frequency, "tag": write.find_tag_error,
    "offset_days": check_integer(-MAX_OFFSET_DAYS, MAX_OFFSET_DAYS), "max_per_hour": check_integer(1, MAX_ENTRIES),
    "yearly": lambda value: None if isinstance(value, bool) else "is invalid",
    "at": lambda value: None if isinstance(value, str) and TIME_OF_DAY.fullmatch(value) else "is invalid",
    "path": _check_path, "holdout": _check_holdout, "holdout_event": _check_event_name,
    "respect_control_group": lambda value: None if isinstance(value, bool) else "is invalid",
}  # fmt: skip


# Ignored runs record events that matched a trigger but started no run. They are deleted at the same age as events,
# because a contact that is in the flow may cause one every minute. Those of the holdout group are kept: a contact has
# only one, and the effect of the flow is measured from them.

_PRUNE_BATCH_SIZE = 400
_PRUNE_PAUSE_SECONDS = 0.005
_DELETE_IGNORED_RUNS = (
    f"DELETE FROM run WHERE id IN (SELECT id FROM run INDEXED BY run_ended WHERE flow_id = ? AND status = 'ignored' "
    f"AND exit_reason IS NOT '{HELD_OUT}' AND created_at < ? LIMIT {_PRUNE_BATCH_SIZE})"
)


def prune_ignored_runs(stopping: threading.Event) -> None:
    """Delete ignored runs older than `events.keep`, if that is set, in small transactions with pauses between them.

    Raises Unavailable, unless the service is stopping.
    """
    seconds = config.parse_seconds(config.current().events.keep)
    if not seconds:
        return
    cutoff = clock.now_ms() - int(seconds * 1000)
    for (flow_id,) in rows("SELECT id FROM flow WHERE hidden = 0"):
        try:
            while (
                not stopping.is_set() and transactions.write(_delete_ignored_runs, flow_id, cutoff) == _PRUNE_BATCH_SIZE
            ):
                stopping.wait(_PRUNE_PAUSE_SECONDS)
        except Unavailable:
            if transactions.is_stopped():
                return
            raise


def _delete_ignored_runs(flow_id: int, before: int) -> int:
    require_write_transaction()
    return run(_DELETE_IGNORED_RUNS, (flow_id, before))


# SQL conditions on an event (`happened`) and its contact (`c`), for one event or for many.

# The condition for opens and clicks by machines, which are not actions of the contact
MACHINE_EVENT_SQL = (
    "({0}.generated = 1 AND json_extract({0}.data, '$.verdict') = 'machine' "
    "AND substr({0}.event, 1, 4) IN ('emai', 'sms_'))"
)
_PUNCTUATION = "' .,;:!?\"'''"
_MESSAGE_TEXT = (
    f"folded(coalesce(json_extract({EVENT_ALIAS}.data, '$.keyword'), json_extract({EVENT_ALIAS}.data, '$.text'), "
    f"json_extract({EVENT_ALIAS}.data, '$.body'), ''))"
)
_TRIMMED_TEXT = f"trim({_MESSAGE_TEXT}, {_PUNCTUATION})"


class EventCondition(NamedTuple):
    """The SQL condition that an event and its contact must match, in two parts.

    `of_event` depends on the event. `of_contact` depends only on the contact `c`; it may be costly, so it is evaluated
    once for each contact, after `of_event` has matched.
    """

    of_event: str
    of_contact: str
    parameters: dict[str, Any]


def compile_condition(account_id: int, flow_id: int, spec: TriggerSpec, prefix: str = "t") -> Compiled:
    """Return the condition of `compile_event_condition` as a single SQL condition."""
    condition = compile_event_condition(account_id, flow_id, spec, prefix)
    return Compiled(f"{condition.of_event} AND {condition.of_contact}", condition.parameters)


def compile_event_condition(account_id: int, flow_id: int, spec: TriggerSpec, prefix: str = "t") -> EventCondition:
    """Return the SQL condition under which an event and its contact match a trigger.

    An incomplete trigger matches nothing. The names of all parameters begin with `prefix`. Raises Invalid for invalid
    filters.
    """
    if spec.event == MANUAL or list_missing(spec):
        return EventCondition("0", "0", {})
    scope = get_condition_scope(account_id)
    binder = Binder(f"{prefix}_", scope)
    parts = [
        f"{EVENT_ALIAS}.account_id = {binder.add(account_id)} AND {EVENT_ALIAS}.event = {binder.add(spec.event)}",
        f"{MACHINE_EVENT_SQL.format(EVENT_ALIAS)} IS NOT TRUE",
        _exclude_own_events(flow_id, spec, binder),
        *_compile_memberships(spec, binder),
        *_compile_tag_and_keywords(spec, binder),
    ]
    where = compile_where(spec.data.get("where") or [], scope, f"{prefix}w")
    of_contact, values = where.of_contact, binder.values | where.parameters
    if spec.segment_id is not None and spec.event != "segment_exit":
        segment = members.compile_segment(account_id, spec.segment_id, f"{prefix}s")
        of_contact, values = f"{of_contact} AND ({segment.sql})", values | segment.parameters
    return EventCondition(" AND ".join([*parts, where.of_event]), of_contact, values)


def compile_where(filters: list[Any], scope: Scope, prefix: str) -> EventCondition:
    """Compile filters, which must all hold, of an event and its contact; raises Invalid for invalid filters."""
    nodes = compiler.parse_filters(filters, scope)
    of_event = [node for node in nodes if compiler.depends_on_event(node)]
    of_contact = [node for node in nodes if not compiler.depends_on_event(node)]
    first = compiler.compile_filters(of_event, scope, f"{prefix}e")
    second = compiler.compile_filters(of_contact, scope, f"{prefix}c")
    return EventCondition(f"({first.sql})", f"({second.sql})", first.parameters | second.parameters)


def _event_value(key: str) -> str:
    return f"json_extract({EVENT_ALIAS}.data, '$.{key}')"


def _exclude_own_events(flow_id: int, spec: TriggerSpec, binder: Binder) -> str:
    """Return the condition that prevents a flow from being started by events of its own messages and runs.

    A `date_reached` event, in contrast, starts only the flow for which it was recorded.
    """
    own = f"({EVENT_ALIAS}.generated = 1 AND {_event_value('flow_id')} = {binder.add(flow_id)})"
    return own if spec.event == DATE else f"{own} IS NOT TRUE"


def _compile_memberships(spec: TriggerSpec, binder: Binder) -> list[str]:
    """Return the conditions on list and segment.

    A list or segment event must be about the trigger's list or segment. For any other event, the contact must be in the
    list.
    """
    parts = []
    if spec.contact_list_id is not None:
        list_id = binder.add(spec.contact_list_id)
        if spec.event in LIST_EVENTS:
            parts.append(f"{_event_value('contact_list_id')} = {list_id}")
        else:
            parts.append(
                f"EXISTS (SELECT 1 FROM membership m WHERE m.contact_list_id = {list_id} AND m.contact_id = c.id)"
            )
    if spec.event in SEGMENT_EVENTS:
        parts.append(f"{_event_value('segment_id')} = {binder.add(spec.segment_id)}")
    return parts


def _compile_tag_and_keywords(spec: TriggerSpec, binder: Binder) -> list[str]:
    """Return the conditions on tag and keywords.

    A tag event must be about the trigger's tag; for any other event, the contact must have the tag. A keyword must be
    the whole text of the message, or its first word.
    """
    parts = []
    tag = spec.data.get("tag")
    if tag:
        tag_parameter = binder.add(fold_case(tag))
        if spec.event in TAG_EVENTS:
            parts.append(f"folded({_event_value('tag')}) = {tag_parameter}")
        else:
            parts.append(
                f"(json_type(c.data, '$.tags') = 'array' AND EXISTS (SELECT 1 FROM json_each(c.data, '$.tags') own "
                f"WHERE own.type = 'text' AND folded(own.value) = {tag_parameter}))"
            )
    if spec.data.get("keywords"):
        keywords_parameter = binder.add(
            json.dumps([fold_case(word).strip(" .,;:!?\"'") for word in spec.data["keywords"]])
        )
        space_at = f"instr({_TRIMMED_TEXT} || ' ', ' ')"
        first_word = f"trim(substr({_TRIMMED_TEXT}, 1, {space_at} - 1), {_PUNCTUATION})"
        parts.append(
            f"EXISTS (SELECT 1 FROM json_each({keywords_parameter}) k WHERE k.value IN ({_TRIMMED_TEXT}, {first_word}))"
        )
    return parts


# Selects the matching events and evaluates the condition on the contact once for each contact. Without MATERIALIZED,
# SQLite would merge both steps and evaluate it for each event.
_SELECT_MATCHING = (
    f"WITH matched AS MATERIALIZED (SELECT {EVENT_ALIAS}.id AS id, c.id AS contact FROM json_each(:events) one "
    f"CROSS JOIN event {EVENT_ALIAS} ON {EVENT_ALIAS}.id = one.value "
    f"CROSS JOIN contact c ON c.id = {EVENT_ALIAS}.contact_id WHERE {{of_event}}), "
    "fitting AS MATERIALIZED (SELECT c.id AS id FROM (SELECT DISTINCT contact FROM matched) m "
    "CROSS JOIN contact c ON c.id = m.contact WHERE {of_contact}) "
    "SELECT id FROM matched WHERE contact IN (SELECT id FROM fitting) ORDER BY id"
)


def match_events(
    account_id: int,
    flow_id: int,
    spec: TriggerSpec,
    event_ids: Sequence[int],
    budget: Budget | None = None,
    part: int = 1,
) -> list[int]:
    """Return the ids of the events that match a trigger, in ascending order.

    If matching fails, the error is logged and no event matches, so that one trigger does not block others. Raises
    ConditionsTooSlow if it costs more than the budget allows, and storage errors.
    """
    try:
        condition = compile_event_condition(account_id, flow_id, spec)
        sql = _SELECT_MATCHING.format(of_event=condition.of_event, of_contact=condition.of_contact)
        with (budget or Budget()).charge(flow_id, part):
            event_rows = rows(sql, {**condition.parameters, "events": json.dumps(list(event_ids))})
    except Exception as error:
        if isinstance(error, ConditionsTooSlow) or to_storage_error(error) is not None:
            raise
        log.exception("flows: trigger condition failed, no run starts flow=%s", flow_id)
        return []
    return [row[0] for row in event_rows]
