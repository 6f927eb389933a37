"""Shapes of what people and accounts say to each other by SMS."""

from typing import Any, Literal

from msgspec import Struct

from appliance import tables
from appliance.api.shapes import Moment
from appliance.clock import iso
from appliance.conversations.reading import Kind, Line
from appliance.messages.store import Status


class Incoming(Struct, rename={"from_": "from"}):
    """An SMS that somebody wrote; `kind` says what it was taken for, `opted_out` that it took its sender out.

    `answered_message_id` is the last message to them before, `reply_message_id` our answer to a keyword.
    """

    id: int
    account_id: int
    contact_id: int | None
    from_: str | None
    to: str | None
    body: str | None
    kind: Kind
    keyword: str | None
    opted_out: bool
    provider: str
    provider_id: str | None
    answered_message_id: int | None
    reply_message_id: int | None
    seen_at: Moment | None
    test: bool
    created_at: Moment


class Said(Struct, rename={"from_": "from"}):
    """One thing that was said: `in` by the person (an Incoming), `out` by us (a Message); each by its id."""

    direction: Literal["in", "out"]
    id: int
    at: Moment
    from_: str | None
    to: str | None
    body: str | None
    kind: Kind | None
    keyword: str | None
    status: Status | None
    segments: int | None
    source_type: Literal["transactional", "campaign", "flow", "test", "system"] | None
    source_name: str | None
    test: bool


def incoming(row: tables.Incoming) -> Incoming:
    """Shape what came in."""
    kind: Any = row.kind
    return Incoming(
        row.id, row.account_id, row.contact_id, row.sender, row.recipient or None, row.body, kind, row.keyword,
        row.opted_out,
        row.provider, row.provider_id, row.answered_id, row.reply_id, iso(row.seen_at), row.test,
        str(iso(row.created_at)),
    )  # fmt: skip


def said(line: Line) -> Said:
    """Shape a line of a conversation."""
    at, heard, sent = str(iso(line.at)), line.incoming, line.message
    if heard is not None:
        kind: Any = heard.kind
        return Said(
            "in", heard.id, at, heard.sender, heard.recipient or None, line.body, kind, heard.keyword, None, None, None,
            None, heard.test,
        )  # fmt: skip
    assert sent is not None
    status: Any = sent.status
    source: Any = sent.source_type
    return Said(
        "out", sent.id, at, sent.sender or None, sent.recipient, line.body, None, None, status, sent.segments, source,
        line.source_name, sent.test,
    )  # fmt: skip
