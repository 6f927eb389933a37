"""Emit event: something happened to the person, as other flows, branches and webhooks see it."""

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from appliance.core.errors import Invalid
from appliance.core.fields import Data, read
from appliance.events import kinds, log
from appliance.events.log import Happened
from appliance.flows.steps.kind import ON, Field, Going, Here, Kind, Move, Node, Reading


class _Emitted(Struct):
    """What comes with the event."""

    event_data: Data | None | UnsetType = UNSET
    forward_event_data: bool | None | UnsetType = UNSET


class EmitEvent(Kind):
    """Record an event of the person."""

    type = "emit_event"
    label = "Record event"
    icon = "zap"
    claims = keys = frozenset({"event_name", "event_data", "forward_event_data"})
    fields = (
        Field("event_name", "Event", "event", required=True),
        Field("event_data", "Its data", "object"),
        Field("forward_event_data", "Pass on the data of the event that started the flow", "boolean"),
    )

    def parse(self, raw: dict[str, Any], reading: Reading) -> dict[str, Any]:
        """Read a name that clients may use too, and the data."""
        name = raw.get("event_name")
        if name is None:
            reading.fault("event_name", "can't be blank")
        elif not isinstance(name, str):
            reading.fault("event_name", "is invalid")
        elif words := kinds.fault(name):
            reading.fault("event_name", words)
        sent = {key: raw[key] for key in ("event_data", "forward_event_data") if raw.get(key) is not None}
        try:
            found = read(_Emitted, sent, reading.path)
        except Invalid as refused:
            reading.faults.merge(refused.fields)
            found = _Emitted()
        return {
            "event_name": name, "event_data": found.event_data or {},
            "forward_event_data": found.forward_event_data is True,
        }  # fmt: skip

    def dump(self, props: dict[str, Any]) -> dict[str, Any]:
        """Leave out data where there is none."""
        return {key: value for key, value in props.items() if key != "event_data" or value}

    def run(self, node: Node, goings: Sequence[Going], here: Here) -> list[Move]:
        """Record it for each; what the step says of the data goes over what is passed on."""
        name, own, forwards = (node.props[key] for key in ("event_name", "event_data", "forward_event_data"))
        log.record_many(
            [
                Happened(
                    going.account_id, name, going.contact_id, {**going.event_data, **own} if forwards else own,
                    resource_uid=f"flow:{here.flow_id}", resource_name=here.flow_name, test=going.test,
                )
                for going in goings
            ]
        )  # fmt: skip
        return [ON for _ in goings]

    def summary(self, props: dict[str, Any], account_id: int) -> str:
        """Name the event."""
        return f"Record the event {props['event_name']}"
