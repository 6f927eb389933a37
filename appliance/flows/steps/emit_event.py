"""The step that records an event of the contact, for other flows, splits and webhooks."""

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from appliance.core.errors import Invalid
from appliance.core.i18n import gettext, gettext_noop
from appliance.core.validation import Data, read
from appliance.events import log
from appliance.events.log import NewEvent
from appliance.flows.steps.base import (
    CONTINUE,
    ActiveRun,
    Node,
    ParseContext,
    StepContext,
    StepField,
    StepKind,
    StepResult,
)


class _EventInput(Struct):
    """The data of the event, for validation."""

    event_data: Data | None | UnsetType = UNSET
    forward_event_data: bool | None | UnsetType = UNSET


class EmitEvent(StepKind):
    """A step that records an event of the contact, with its own data and, optionally, the triggering event's."""

    type = "emit_event"
    label = gettext_noop("Record event")
    icon = "zap"
    claims = keys = frozenset({"event_name", "event_data", "forward_event_data"})
    fields = (
        StepField("event_name", gettext_noop("Event name"), "event", required=True),
        StepField("event_data", gettext_noop("Event data"), "object"),
        StepField("forward_event_data", gettext_noop("Include the data of the trigger event"), "boolean"),
    )

    def parse(self, raw: dict[str, Any], context: ParseContext) -> dict[str, Any]:
        """Parse `event_name`, which must be a name that API clients may use, `event_data` and `forward_event_data`."""
        name = raw.get("event_name")
        if name is None:
            context.add_fault("event_name", "can't be blank")
        elif not isinstance(name, str):
            context.add_fault("event_name", "is invalid")
        elif error := log.find_name_error(name):
            context.add_fault("event_name", error)
        raw_values = {key: raw[key] for key in ("event_data", "forward_event_data") if raw.get(key) is not None}
        try:
            data = read(_EventInput, raw_values, context.path)
        except Invalid as error_raised:
            context.faults.merge(error_raised.fields)
            data = _EventInput()
        return {
            "event_name": name, "event_data": data.event_data or {},
            "forward_event_data": data.forward_event_data is True,
        }  # fmt: skip

    def dump(self, props: dict[str, Any]) -> dict[str, Any]:
        """Return the props, without `event_data` if it is empty."""
        return {key: value for key, value in props.items() if key != "event_data" or value}

    def get_disclosures(self, props: dict[str, Any]) -> dict[str, Any]:
        """Return which event gets the data of the triggering event, because other flows may use that data."""
        return {"forwarded_to": props["event_name"]} if props.get("forward_event_data") else {}

    def run(self, node: Node, runs: Sequence[ActiveRun], context: StepContext) -> list[StepResult]:
        """Record the event for each run; values of the step override forwarded ones with the same key."""
        name, own_data, is_forwarding = (node.props[key] for key in ("event_name", "event_data", "forward_event_data"))
        log.record_many(
            [
                NewEvent(
                    run.account_id, name, run.contact_id, {**run.event_data, **own_data} if is_forwarding else own_data,
                    resource_uid=f"flow:{context.flow_id}", resource_name=context.flow_name, test=run.test,
                )
                for run in runs
            ]
        )  # fmt: skip
        return [CONTINUE for _ in runs]

    def summary(self, props: dict[str, Any], account_id: int) -> str:
        """Return a text with the name of the event."""
        return gettext("Record the event “%(event)s”", event=log.name_event(props["event_name"]))

    def name(self, props: dict[str, Any], account_id: int) -> str:
        """Return the text of `summary`, which already has quotation marks."""
        return self.summary(props, account_id)
