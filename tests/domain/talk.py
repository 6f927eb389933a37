"""Somebody who writes back over SMS, for tests of what follows from that."""

from typing import Any

from appliance.inbound.conversations import receiving
from appliance.sending.sms.codes import Incoming as Heard
from appliance.storage import work
from appliance.storage.models import Incoming, Message
from appliance.storage.open import rows

ANN, OURS = "+14155550101", "+14155550199"


def hear(body: str, sender: str = ANN, to: str = OURS, **more: Any) -> bool:
    """Take in an SMS as the hook of a provider does."""
    heard = Heard(more.pop("provider_id", None), sender, to, body, more.pop("answered", None))
    return work.write(receiving.receive, "twilio", heard, **more)


def events(*names: str) -> list[tuple[Any, ...]]:
    """Return the events of some names: name, contact, the keyword in it."""
    marks = ",".join("?" * len(names))
    return rows(f"SELECT event, contact_id, data ->> 'keyword' FROM event WHERE event IN ({marks}) ORDER BY id", names)


def kept() -> list[Incoming]:
    """Return what came in, the oldest first."""
    return list(Incoming.select().order_by(Incoming.id))


def answers() -> list[str | None]:
    """Return what we answered, the oldest first."""
    return [receiving.text_of(row.id) for row in Message.select().order_by(Message.id)]
