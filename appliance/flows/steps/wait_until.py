"""The step that makes a run wait until an hour of the day, a date of the contact, or an event of the contact.

A wait for a date or an event has two branches. A run takes `yes` if the date or event came, and `no` if there is no
such date, if it is past, or if the event did not come in time. An empty branch continues with the next step.
"""

import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from appliance.audience import time_zones
from appliance.audience.filters import compiler
from appliance.audience.segments import explain
from appliance.audience.time_zones import LocalZone
from appliance.core.errors import Invalid
from appliance.core.i18n import get_locale, gettext, gettext_noop, ngettext
from appliance.events import log
from appliance.flows import date_events, event_waits, triggers
from appliance.flows.date_events import WEEKDAYS, get_due_moment, parse_day
from appliance.flows.steps.base import (
    CONTINUE,
    YES,
    ActiveRun,
    Node,
    ParseContext,
    StepContext,
    StepField,
    StepKind,
    StepResult,
    read_event_name,
    take,
    wait_until,
)
from appliance.flows.steps.wait import MAX_SECONDS, format_duration
from appliance.flows.triggers import DEFAULT_TIME_OF_DAY, MAX_OFFSET_DAYS, TIME_OF_DAY, check_integer
from appliance.storage.database import rows

MIN_TIMEOUT_SECONDS = 60
ZONES = ("contact", "account")
_TIME, _DATE, _EVENT = "time", "date", "event"
_CLOCK_MODES = (_TIME, _DATE)
# The keys that belong to each kind of wait.
_KEYS = {
    _TIME: ("at", "weekdays", "time_zone"),
    _DATE: ("path", "offset_days", "at", "time_zone"),
    _EVENT: ("event_name", "filters", "timeout"),
}


class WaitUntil(StepKind):
    """A step that makes the run wait until a moment that depends on the contact."""

    type = "wait_until"
    label = gettext_noop("Wait until")
    icon = "clock"
    branch_keys = ("yes", "no")
    waits = True
    keys = frozenset({"until"}).union(*_KEYS.values())
    fields = (
        StepField(
            "until", gettext_noop("Wait until"), "choice", required=True,
            options=(
                (_TIME, gettext_noop("a time of day")), (_DATE, gettext_noop("a date of the contact")),
                (_EVENT, gettext_noop("something happens")),
            ),
        ),
        StepField("path", gettext_noop("Custom field with the date"), "path", required=True, applies_to=(_DATE,)),
        StepField("offset_days", gettext_noop("Days"), "offset", applies_to=(_DATE,)),
        StepField(
            "at", gettext_noop("Time of day"), "time", required=True, applies_to=_CLOCK_MODES,
            default=DEFAULT_TIME_OF_DAY,
        ),
        StepField(
            "weekdays", gettext_noop("Only on these days"), "weekdays", applies_to=(_TIME,),
            help=gettext_noop("Without a choice: every day."),
        ),
        StepField(
            "time_zone", gettext_noop("Time zone"), "choice", applies_to=_CLOCK_MODES, default="contact",
            options=(
                ("contact", gettext_noop("The contact’s, if known")), ("account", gettext_noop("The account’s")),
            ),
            help=gettext_noop(
                "The contact’s time zone comes from the custom field “time_zone”, the phone number or the country."
            ),
        ),
        StepField("event_name", gettext_noop("Event"), "awaited_event", required=True, applies_to=(_EVENT,)),
        StepField("filters", gettext_noop("Only if the event matches"), "filters", applies_to=(_EVENT,)),
        StepField(
            "timeout", gettext_noop("Wait at most"), "duration", required=True, applies_to=(_EVENT,), default=259_200,
            help=gettext_noop("In seconds, from a minute to 366 days."),
        ),
    )  # fmt: skip

    def parse(self, raw: dict[str, Any], context: ParseContext) -> dict[str, Any]:
        """Parse `until`, and the keys that belong to it; all other keys must be absent."""
        until = raw.get("until")
        if not isinstance(until, str) or until not in _KEYS:
            message = "can't be blank" if until is None else "is not included in the list"
            context.add_fault("until", gettext(message))
            return {"until": None}
        for key in self.keys - {"until", *_KEYS[until]}:
            if raw.get(key) is not None:
                context.add_fault(key, gettext("is only allowed with another value of until"))
        return {"until": until, **{key: _PARSERS[key](raw.get(key), key, context) for key in _KEYS[until]}}

    def dump(self, props: dict[str, Any]) -> dict[str, Any]:
        """Return the props, without keys that have no effect."""
        return {key: value for key, value in props.items() if value not in ([], 0)}

    def list_branches(self, props: dict[str, Any]) -> dict[str, str]:
        """Return the branches of a wait for a date or an event; a wait for an hour has none."""
        if props.get("until") == _DATE:
            return {"yes": gettext("Date reached"), "no": gettext("No date, or past")}
        if props.get("until") == _EVENT:
            return {"yes": gettext("Happened"), "no": gettext("Not in time")}
        return {}

    def get_disclosures(self, props: dict[str, Any]) -> dict[str, Any]:
        """Return the event with its filters, the field of the date, or that the contact's time zone is used.

        A wait for an event without filters reveals nothing, as in a trigger.
        """
        if props.get("until") == _EVENT:
            return {"filters": props["filters"], "event": props["event_name"]} if props["filters"] else {}
        return {key: props[key] for key in ("path", "time_zone") if props.get(key) not in (None, "account")}

    def list_missing(self, props: dict[str, Any], account_id: int) -> list[tuple[str, str]]:
        """Return (path, message) for each error of the stored filters, such as a segment that was deleted."""
        try:
            _parse_filters(props, account_id, writing=True)
        except Invalid as error:
            return [(path, message) for path, messages in error.fields.items() for message in messages]
        return []

    def run(self, node: Node, runs: Sequence[ActiveRun], context: StepContext) -> list[StepResult]:
        """Make each run that has just arrived wait, and those that have waited continue, with their branch.

        The time is computed on arrival, from the contact's zone and date at that time.
        """
        return _RUNNERS[node.props["until"]](node.props, runs, context)

    def simulate(self, node: Node, run: ActiveRun, result: StepResult, context: StepContext) -> dict[str, Any]:
        """Return the time zone of the wait and its source, or the event for which it waits."""
        if node.props["until"] == _EVENT:
            return {"event": node.props["event_name"]}
        zone = _find_zones(node.props, [run], context.account_id).get(run.id)
        return {} if zone is None else {"time_zone": zone.zone.key, "time_zone_source": zone.source}

    def summary(self, props: dict[str, Any], account_id: int) -> str:
        """Return a text that says what the step waits for, such as `Wait until 09:00 on Mon, Tue`."""
        if props["until"] == _TIME:
            return _describe_time(props)
        return _describe_date(props) if props["until"] == _DATE else _describe_event(props, account_id)


def _describe_time(props: dict[str, Any]) -> str:
    if not props["weekdays"]:
        return gettext("Wait until %(time)s", time=props["at"])
    days = ", ".join(name_weekday(day) for day in props["weekdays"])
    return gettext("Wait until %(time)s on %(days)s", time=props["at"], days=days)


def name_weekday(day: str) -> str:
    """Return the short name of a weekday such as `mon`."""
    return str(get_locale().days["stand-alone"]["abbreviated"][WEEKDAYS.index(day)])


def _describe_date(props: dict[str, Any]) -> str:
    field, time_of_day, days = str(props["path"]).removeprefix("data."), props["at"], props["offset_days"]
    if not days:
        return gettext("Wait until the date in “%(field)s”, %(time)s", field=field, time=time_of_day)
    if days < 0:
        return ngettext(
            "Wait until %(num)s day before the date in “%(field)s”, %(time)s",
            "Wait until %(num)s days before the date in “%(field)s”, %(time)s",
            -days, field=field, time=time_of_day,
        )  # fmt: skip
    return ngettext(
        "Wait until %(num)s day after the date in “%(field)s”, %(time)s",
        "Wait until %(num)s days after the date in “%(field)s”, %(time)s",
        days, field=field, time=time_of_day,
    )  # fmt: skip


def _describe_event(props: dict[str, Any], account_id: int) -> str:
    event, limit = log.name_event(props["event_name"]), format_duration(props["timeout"])
    if not props["filters"]:
        return gettext("Wait until “%(event)s”, at most %(duration)s", event=event, duration=limit)
    scope = triggers.get_condition_scope(account_id)
    conditions = explain.describe_filters(account_id, compiler.parse_filters(props["filters"], scope), scope)
    return gettext(
        "Wait until “%(event)s” with %(conditions)s, at most %(duration)s",
        event=event, conditions=conditions, duration=limit,
    )  # fmt: skip


# Parsing.


def _parse_filters(props: dict[str, Any], account_id: int, writing: bool = False, path: str = "filters") -> None:
    """Raise Invalid if the filters of a wait for an event are invalid; with `writing`, ids in them must exist."""
    compiler.parse_filters(props.get("filters") or [], triggers.get_condition_scope(account_id, writing), path)


def _read_path(value: Any, key: str, context: ParseContext) -> Any:
    if value is None:
        context.add_fault(key, gettext("can't be blank"))
    elif not isinstance(value, str) or triggers.find_date_source(value) is None:
        context.add_fault(key, gettext("is invalid"))
    return value


def _read_offset(value: Any, key: str, context: ParseContext) -> int:
    error = check_integer(-MAX_OFFSET_DAYS, MAX_OFFSET_DAYS)(value or 0)
    if error:
        context.add_fault(key, error)
        return 0
    return int(value or 0)


def _read_time(value: Any, key: str, context: ParseContext) -> str:
    if value is None:
        return DEFAULT_TIME_OF_DAY
    if not isinstance(value, str) or not TIME_OF_DAY.fullmatch(value):
        context.add_fault(key, gettext("is invalid"))
        return DEFAULT_TIME_OF_DAY
    return value


def _read_weekdays(value: Any, key: str, context: ParseContext) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list):
        context.add_fault(key, gettext("is invalid"))
        return []
    for index, day in enumerate(value):
        if day not in WEEKDAYS:
            context.add_fault(f"{key}[{index}]", gettext("is not included in the list"))
    return [day for day in WEEKDAYS if day in value]


def _read_zone(value: Any, key: str, context: ParseContext) -> str:
    if value is None:
        return "contact"
    if value not in ZONES:
        context.add_fault(key, gettext("is not included in the list"))
    return str(value)


def _read_filters(value: Any, key: str, context: ParseContext) -> list[Any]:
    try:
        _parse_filters({"filters": value}, context.account_id, True, f"{context.path}.{key}")
    except Invalid as error:
        context.faults.merge(error.fields)
    return value or []


def _read_timeout(value: Any, key: str, context: ParseContext) -> Any:
    error = check_integer(MIN_TIMEOUT_SECONDS, MAX_SECONDS)(value)
    if error:
        context.add_fault(key, gettext(error))
    return value


_PARSERS: dict[str, Callable[[Any, str, ParseContext], Any]] = {
    "at": _read_time, "weekdays": _read_weekdays, "time_zone": _read_zone, "path": _read_path,
    "offset_days": _read_offset, "event_name": read_event_name, "filters": _read_filters, "timeout": _read_timeout,
}  # fmt: skip


# Execution: each function returns a result for each run, in order.


def _run_time(props: dict[str, Any], runs: Sequence[ActiveRun], context: StepContext) -> list[StepResult]:
    zones = _find_zones(props, runs, context.account_id)
    return [
        CONTINUE
        if run.step_visit_id is not None or run.id not in zones
        else wait_until(
            date_events.get_next_moment(context.get_time(run), props["at"], props["weekdays"], zones[run.id].zone)
        )
        for run in runs
    ]  # fmt: skip


def _run_date(props: dict[str, Any], runs: Sequence[ActiveRun], context: StepContext) -> list[StepResult]:
    arriving = [run for run in runs if run.step_visit_id is None]
    zones, dates = _find_zones(props, arriving, context.account_id), _read_dates(props["path"], arriving)
    results = []
    for run in runs:
        if run.step_visit_id is not None:
            results.append(YES)
            continue
        day = parse_day(dates.get(run.id), zones[run.id].zone) if run.id in zones else None
        moment = None if day is None else _add_days(day, props, zones[run.id])
        if moment is None:
            results.append(take("no", "no_date"))
        elif moment < context.get_time(run):
            results.append(take("no", "date_passed"))
        else:
            results.append(wait_until(moment) if moment > context.get_time(run) else YES)
    return results


def _add_days(day: Any, props: dict[str, Any], local: LocalZone) -> int | None:
    """Return the time of a date plus the offset of a step in Unix milliseconds, or None if there is no such day."""
    try:
        return get_due_moment(day + timedelta(days=props["offset_days"]), props["at"], local.zone)
    except (OverflowError, ValueError):
        return None


def _run_event(props: dict[str, Any], runs: Sequence[ActiveRun], context: StepContext) -> list[StepResult]:
    waited = [run.id for run in runs if run.step_visit_id is not None]
    happened = (
        event_waits.find_runs_with_event(context.account_id, props["event_name"], props["filters"], waited)
        if waited else set()
    )  # fmt: skip
    timeout_ms, timed_out = props["timeout"] * 1000, take("no", "timed_out")
    return [
        wait_until(context.get_time(run) + timeout_ms) if run.step_visit_id is None
        else YES if run.id in happened else timed_out
        for run in runs
    ]  # fmt: skip


_RUNNERS: dict[str, Callable[[dict[str, Any], Sequence[ActiveRun], StepContext], list[StepResult]]] = {
    _TIME: _run_time, _DATE: _run_date, _EVENT: _run_event,
}  # fmt: skip


def _find_zones(props: dict[str, Any], runs: Sequence[ActiveRun], account_id: int) -> dict[int, LocalZone]:
    """Return the time zone that applies to each run, by run id; runs whose contact was deleted are left out."""
    contact_ids = {run.id: run.contact_id for run in runs if run.contact_id is not None}
    if props["time_zone"] == "account":
        return dict.fromkeys(contact_ids, time_zones.get_account_zone(account_id)) if contact_ids else {}
    zones = time_zones.find_zones(account_id, list(contact_ids.values()))
    return {run_id: zones[contact_id] for run_id, contact_id in contact_ids.items() if contact_id in zones}


def _read_dates(path: str, runs: Sequence[ActiveRun]) -> dict[int, Any]:
    """Return the raw value of the date field at a path for each run, by run id."""
    source = triggers.find_date_source(path)
    if source is None:
        return {}
    contact_ids = json.dumps([run.contact_id for run in runs])
    values = dict(
        rows(f"SELECT c.id, {source.sql} FROM contact c WHERE c.id IN (SELECT value FROM json_each(?))", (contact_ids,))
    )
    return {run.id: values.get(run.contact_id) for run in runs}
