"""Somebody who writes back over SMS, for tests of what follows from that."""

from typing import Any

from appliance.inbound import incoming_sms
from appliance.sending.sms.error_codes import IncomingSms
from appliance.storage import transactions
from appliance.storage.database import rows
from appliance.storage.models import Incoming, Message

ANN, OURS = "+14155550101", "+14155550199"


def hear(body: str, sender: str = ANN, to: str = OURS, **more: Any) -> bool:
    """Take in an SMS as the hook of a provider does."""
    heard = IncomingSms(more.pop("provider_id", None), sender, to, body, more.pop("answered", None))
    return transactions.write(incoming_sms.receive_sms, "twilio", heard, **more)


def events(*names: str) -> list[tuple[Any, ...]]:
    """Return the events of some names: name, contact, the keyword in it."""
    marks = ",".join("?" * len(names))
    return rows(f"SELECT event, contact_id, data ->> 'keyword' FROM event WHERE event IN ({marks}) ORDER BY id", names)


def kept() -> list[Incoming]:
    """Return what came in, the oldest first."""
    return list(Incoming.select().order_by(Incoming.id))


def answers() -> list[str | None]:
    """Return what we answered, the oldest first."""
    return [incoming_sms.get_answer_text(row.id) for row in Message.select().order_by(Message.id)]
