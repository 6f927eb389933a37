"""Turns a mail that came back into facts about messages of ours; what it is decides, not the address it came to."""

from email.message import Message

from appliance.db.work import writing
from appliance.feedback import arf, dsn, mime, record, signed
from appliance.feedback.facts import Fact


def facts(raw: bytes, message_id: int | None) -> list[list[Fact]]:
    """Return what a mail tells: for each thing told, the ways its recipient is named, of which one may be true.

    `message_id` is the message whose return path it came to. What names no recipient tells nothing, but for a complaint
    that is proven by what we signed.
    """
    mail = mime.parse(raw)
    if mail is None:
        return []
    complaint = arf.read(mail, message_id)
    if complaint is not None:
        told = Fact(complaint.message_id, "complained", "arf", text=complaint.text)
        return [_ways(told, complaint.recipients) + ([told] if complaint.is_proven else [])]
    if message_id is None or _is_of_another(mail, message_id):
        return []
    return [
        _ways(Fact(message_id, report.kind, "dsn", report.text, report.smtp, report.enhanced), report.recipients)
        for report in dsn.read(mail)
        if report.recipients
    ]


def _ways(fact: Fact, recipients: tuple[str, ...]) -> list[Fact]:
    return [fact._replace(recipient=name) for name in recipients]


def apply(told: list[list[Fact]]) -> int:
    """Write what mail told, each thing in the first way that is true; returns how much of it is new."""
    writing()
    return sum(any(record.apply(fact) for fact in ways) for ways in told)


def _is_of_another(mail: Message, message_id: int) -> bool:
    """Return whether what came back is another message of ours than the one it was sent back for."""
    return bool(signed.find(mime.original(mail)).named - {message_id})
