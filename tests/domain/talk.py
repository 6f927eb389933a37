"""Helpers that receive SMS replies of contacts and read what follows from them."""

from typing import Any

from appliance.inbound import incoming_sms
from appliance.sending.sms.error_codes import IncomingSms
from appliance.storage import transactions
from appliance.storage.database import rows
from appliance.storage.models import Incoming

ANN, OURS = "+14155550101", "+14155550199"


def receive_sms(body: str, sender: str = ANN, to: str = OURS, **more: Any) -> bool:
    """Receive an SMS as a provider's webhook does."""
    incoming = IncomingSms(more.pop("provider_id", None), sender, to, body, more.pop("answered", None))
    return transactions.write(incoming_sms.receive_sms, "twilio", incoming, **more)


def events_named(*names: str) -> list[tuple[Any, ...]]:
    """Return (name, contact, keyword) of the events with these names."""
    marks = ",".join("?" * len(names))
    return rows(f"SELECT event, contact_id, data ->> 'keyword' FROM event WHERE event IN ({marks}) ORDER BY id", names)


def stored_sms() -> list[Incoming]:
    """Return the stored incoming SMS, oldest first."""
    return list(Incoming.select().order_by(Incoming.id))


def automatic_replies() -> list[str | None]:
    """Return the texts of our automatic replies, oldest first."""
    sql = "SELECT c.data ->> 'answer' FROM message m LEFT JOIN message_content c ON c.message_id = m.id ORDER BY m.id"
    return [row[0] for row in rows(sql)]
