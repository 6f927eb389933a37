"""The step that makes a run wait for a duration: the run is stored with the time when it is due."""

from collections.abc import Sequence
from typing import Any

from appliance.core.i18n import gettext, gettext_noop, ngettext
from appliance.flows.steps.base import (
    CONTINUE,
    ActiveRun,
    Node,
    ParseContext,
    StepContext,
    StepField,
    StepKind,
    StepResult,
    wait_until,
)

MAX_SECONDS = 31_622_400  # a leap year
_UNITS = (86_400, 3_600, 60, 1)


class Wait(StepKind):
    """A step that makes the run wait for `duration` seconds."""

    type = "wait"
    label = gettext_noop("Wait")
    icon = "clock"
    waits = True
    claims = keys = frozenset({"duration"})
    fields = (
        StepField(
            "duration", gettext_noop("Duration"), "duration", required=True,
            help=gettext_noop("In seconds, up to 366 days."),
        ),
    )  # fmt: skip

    def parse(self, raw: dict[str, Any], context: ParseContext) -> dict[str, Any]:
        """Parse `duration`, an integer from 0 to `MAX_SECONDS`."""
        duration = raw.get("duration")
        if duration is None:
            context.add_fault("duration", "can't be blank")
        elif isinstance(duration, bool) or not isinstance(duration, int):
            context.add_fault("duration", "is not a number")
        elif duration < 0:
            context.add_fault("duration", "must be greater than or equal to 0")
        elif duration > MAX_SECONDS:
            context.add_fault("duration", f"must be less than or equal to {MAX_SECONDS}")
        return {"duration": duration}

    def run(self, node: Node, runs: Sequence[ActiveRun], context: StepContext) -> list[StepResult]:
        """Let a run that has just arrived wait for the duration, and let a run that has waited continue."""
        duration_ms = node.props["duration"] * 1000
        return [
            CONTINUE if run.step_visit_id is not None else wait_until(context.get_time(run) + duration_ms)
            for run in runs
        ]

    def summary(self, props: dict[str, Any], account_id: int) -> str:
        """Return a text such as `Wait 3 days`, translated."""
        return gettext("Wait %(duration)s", duration=format_duration(props["duration"]))


def format_duration(seconds: int) -> str:
    """Return a duration as text in its two largest units, such as `3 days 4 hours`."""
    parts = []
    for size in _UNITS:
        number, seconds = divmod(seconds, size)
        if number:
            parts.append(_format_units(number, size))
    return " ".join(parts[:2]) or _format_units(0, 1)


def _format_units(number: int, size: int) -> str:
    """Return a number of days, hours, minutes or seconds as text; `size` is the unit in seconds."""
    if size == 86_400:
        return ngettext("%(num)s day", "%(num)s days", number)
    if size == 3_600:
        return ngettext("%(num)s hour", "%(num)s hours", number)
    if size == 60:
        return ngettext("%(num)s minute", "%(num)s minutes", number)
    return ngettext("%(num)s second", "%(num)s seconds", number)
