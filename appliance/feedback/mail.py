"""Turns a mail that came back into facts about messages of ours; what it is decides, not the address it came to."""

from email.message import Message

from appliance.db.work import writing
from appliance.feedback import arf, dsn, mime, record
from appliance.feedback.facts import Fact
from appliance.messages import links


def facts(raw: bytes, message_id: int | None) -> list[list[Fact]]:
    """Answer what a mail tells: for each thing told, the ways its recipient is named, of which one may be true.

    `message_id` is the message whose return path it came to; a complaint is believed by its own signatures alone.
    """
    mail = mime.parse(raw)
    if mail is None:
        return []
    complaint = arf.read(mail)
    if complaint is not None:
        return [[Fact(complaint.message_id, "complained", "arf", text=complaint.text)]]
    if message_id is None or _is_of_another(mail, message_id):
        return []
    found = []
    for report in dsn.read(mail):
        fact = Fact(message_id, report.kind, "dsn", report.text, report.smtp, report.enhanced)
        found.append([fact._replace(recipient=name) for name in report.recipients] or [fact])
    return found


def apply(told: list[list[Fact]]) -> int:
    """Write what mail told, each thing in the first way that is true; answers how much of it is new."""
    writing()
    return sum(any(record.apply(fact) for fact in ways) for ways in told)


def _is_of_another(mail: Message, message_id: int) -> bool:
    """Say whether what came back is another message of ours than the one it was sent back for."""
    ours = {links.message_of(value) for name, value in mime.original(mail) if name == "message-id"} - {None}
    return bool(ours) and message_id not in ours
