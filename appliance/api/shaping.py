"""Turns rows into the shapes of the API."""

from functools import cache
from typing import Any, TypeVar

from msgspec import Struct

from appliance.api import brand_shapes, shapes
from appliance.audience.contacts.store import is_sendable
from appliance.content import media
from appliance.content.templates.store import is_editable
from appliance.core.clock import iso
from appliance.events import shape
from appliance.storage import models

S = TypeVar("S", bound=Struct)


@cache
def _fields(kind: type[Struct]) -> tuple[tuple[str, bool], ...]:
    """Return the fields of a shape, and whether each is a time."""
    return tuple((name, name.endswith("_at")) for name in kind.__struct_fields__)


def _same(kind: type[S], row: Any, **given: Any) -> S:
    """Fill a shape from a row: equal names are taken over, times are written out, the rest is given."""
    # A page has thousands of values: what the table's own attributes would answer is taken from behind them
    stored = getattr(row, "__data__", given)
    for name, is_time in _fields(kind):
        if name not in given:
            value = stored[name] if name in stored else getattr(row, name)
            given[name] = iso(value) if is_time and value is not None else value
    return kind(**given)


def channel(row: models.Channel) -> shapes.Channel:
    """Shape a channel."""
    return _same(shapes.Channel, row, verified=row.verified_at is not None, suppression_reason=row.suppression)


def _contact_values(row: models.Contact) -> dict[str, Any]:
    by_kind = {kind: [one for one in row.channels if one.kind == kind] for kind in ("email", "phone")}
    first = (by_kind["email"] or by_kind["phone"] or [None])[0]
    status = "unverified"
    if first is not None:
        status = "suppressed" if first.suppression else "verified" if first.verified_at else "unverified"
    enrichment = (row.data or {}).get("enrichment")
    return {
        "subscribed_email": any(one.subscribed for one in by_kind["email"]),
        "subscribed_phone": any(one.subscribed for one in by_kind["phone"]),
        "sendable_email": any(is_sendable(one) for one in by_kind["email"]),
        "sendable_phone": any(is_sendable(one) for one in by_kind["phone"]),
        "verification_status": status,
        "enrichment_status": "enriched" if isinstance(enrichment, dict) and enrichment else "not_enriched",
        "channels": [channel(one) for one in row.channels],
    }


def contact(row: models.Contact) -> shapes.Contact:
    """Shape a contact loaded with its channels and lists."""
    return _same(shapes.Contact, row, **_contact_values(row))


def contact_written(row: models.Contact, kept: list[str]) -> shapes.ContactWritten:
    """Shape a contact just written."""
    return _same(shapes.ContactWritten, row, kept_opt_out=kept, **_contact_values(row))


def contact_list(row: models.ContactList, sendable: dict[str, int]) -> shapes.ContactList:
    """Shape a list."""
    return _same(shapes.ContactList, row, sendable_count=shapes.Sendable(**sendable))


def template(row: models.Template) -> shapes.Template:
    """Shape a template."""
    return _same(shapes.Template, row)


def trigger(row: models.Trigger) -> shapes.Trigger:
    """Shape a trigger."""
    return _same(shapes.Trigger, row)


def campaign(row: models.Campaign) -> shapes.Campaign:
    """Shape a campaign loaded with trigger, template and sums."""
    content, waits = template(row.template), row.waiting
    return _same(
        shapes.Campaign, row, waiting=waits and shapes.Waiting(waits.reason, waits.text, iso(waits.until)),
        stats=shapes.Stats(**row.stats), editable=is_editable(row), trigger=trigger(row.trigger),
        template=content, templates=[content],
        freezing=shapes.Freezing(row.freezing["done"], row.freezing["total"]) if row.freezing else None,
    )  # fmt: skip


def _message_values(row: models.Message) -> dict[str, Any]:
    error = None
    if row.error_code is not None:
        error = shapes.MessageError(row.error_code, row.error_smtp, row.error_enhanced, row.error_text)
    is_open = row.status in ("queued", "held")
    return {
        "to": row.recipient, "from_": row.sender or None, "tags": row.tags or {}, "error": error,
        # Of a flow that is paused it waits for somebody to let it go on
        "next_attempt_at": iso(max(row.due_at, row.created_at)) if is_open and row.due_at is not None else None,
        "source_name": getattr(row, "source_name", None),
    }  # fmt: skip


def message(row: models.Message) -> shapes.Message:
    """Shape a message."""
    return _same(shapes.Message, row, **_message_values(row))


def message_detail(row: models.Message, said: Any, events: list[models.Event]) -> shapes.MessageDetail:
    """Shape a message with its content; `said` has `html`, `text` and `headers`."""
    return _same(
        shapes.MessageDetail, row, html=said["html"], text=said["text"], headers=said["headers"],
        events=[event(one) for one in events], **_message_values(row),
    )  # fmt: skip


event = shape.event


def brand(row: models.Brand) -> brand_shapes.Brand:
    """Shape the brand; nothing is ever fetched, so where it came from stays null."""
    return _same(
        brand_shapes.Brand, row, source_url=None, last_scraped_at=None, logo=media.shown(row.logo),
        links=[brand_shapes.BrandLink(**{"url": "", "icon": "", "title": "", **one}) for one in row.links or []],
        complete=bool(row.brand_color and row.company_name),
    )  # fmt: skip
