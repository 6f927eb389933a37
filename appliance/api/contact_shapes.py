"""Shapes of what belongs to a person: suppressions, evidence, timeline, and the whole of it in one document."""

from typing import Any, Literal

from msgspec import Struct

from appliance.api import shapes
from appliance.api.conversations import Incoming
from appliance.api.flow_runs import FlowRunDetail
from appliance.api.shapes import Json, Moment
from appliance.audience.contacts.suppress import Reason
from appliance.core.clock import iso
from appliance.storage import models


class Suppression(Struct):
    """An address that must not be written to; an erased one is known by its hash alone."""

    id: int
    channel: Literal["email", "sms"]
    address: str | None
    reason: Reason
    source: str | None
    diagnostic: str | None
    note: str | None
    created_at: Moment
    expires_at: Moment | None


class ConsentRow(Struct):
    """One row of evidence: who agreed or refused, how, when, from where and to which words."""

    id: int
    contact_id: int | None
    kind: Literal["email", "phone"]
    address: str | None
    act: Literal[
        "opt_in", "opt_out", "requested", "confirmed", "suppressed", "lifted", "list_joined", "list_left", "tracking",
        "erase_requested",
    ]  # fmt: skip
    by: Literal["recipient", "operator", "service"]
    source: str
    actor: str | None
    list_id: int | None
    ip: str | None
    user_agent: str | None
    text: str | None
    data: Json
    created_at: Moment


class TimelineEntry(Struct):
    """Something that happened to a person, or a message to them."""

    type: Literal["event", "message"]
    id: int
    created_at: Moment
    event: shapes.Event | None
    message: shapes.Message | None


class Named(Struct):
    """A list by id and name."""

    id: int
    name: str


class MessageText(Struct):
    """What a single message said, as it was handed in."""

    message_id: int
    subject: str | None
    body: str | None
    text: str | None
    from_name: str | None
    headers: Json
    data: Json


class ContactExport(Struct):
    """Everything that is kept about a person."""

    exported_at: Moment
    contact: shapes.Contact
    lists: list[Named]
    left_lists: list[Named]
    suppressions: list[Suppression]
    consents: list[ConsentRow]
    messages: list[shapes.Message]
    message_texts: list[MessageText]
    incoming: list[Incoming]
    events: list[shapes.Event]
    flow_runs: list[FlowRunDetail]


def suppression(row: models.Suppression) -> Suppression:
    """Shape a suppression."""
    reason: Any = row.reason
    return Suppression(
        row.id, "email" if row.kind == "email" else "sms", row.address, reason, row.source, row.diagnostic, row.note,
        _moment(row.created_at), iso(row.expires_at),
    )  # fmt: skip


def consent(row: Any) -> ConsentRow:
    """Shape a row of evidence loaded with its `address`, where that is still known."""
    values = {name: getattr(row, name) for name in ConsentRow.__struct_fields__ if name != "created_at"}
    return ConsentRow(**values, created_at=_moment(row.created_at))


def _moment(ms: int) -> str:
    return str(iso(ms))
