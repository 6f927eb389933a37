"""The built-in inbox: messages that the capture transport took instead of sending them."""

from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any, NamedTuple

from appliance.content.designs import markup
from appliance.core import clock, signals
from appliance.core.errors import NotFound
from appliance.sending.messages import links
from appliance.sending.sms import segments
from appliance.sending.sms.segments import OutgoingSms
from appliance.storage.database import Page, fetch_one, paginate, rows, run, scalar
from appliance.storage.models import CapturedMessage, Message
from appliance.storage.transactions import after_commit, require_write_transaction

RETENTION_MS = 90 * 24 * 3600 * 1000
# Name of the setting with the last message that was cleared: it is not shown any more, and deleted in batches.
_CLEARED_SETTING = "inbox_emptied:"


class ParsedMail(NamedTuple):
    """The headers of a captured email, and the message that it belongs to."""

    account_id: int
    message_id: int
    from_header: str
    subject: str
    preview: str


def parse_mail(raw: bytes) -> ParsedMail | None:
    """Parse an email that is ours by its signed Message-ID, else return None; never called on the writer."""
    parsed = parse_message(raw)
    number = links.read_message_id(str(parsed.get("Message-ID", "")))
    row = Message.get_or_none(Message.id == number) if number is not None else None
    if row is None:
        return None
    return ParsedMail(
        row.account_id, row.id, str(parsed.get("From", "")), str(parsed.get("Subject", "")), _preview(parsed)
    )  # fmt: skip


def _preview(parsed: EmailMessage) -> str:
    """Return what an inbox shows after the subject: the preview text, else the first words."""
    html = _get_body(parsed, "html")
    if html is not None:
        return markup.extract_preview_text(html)
    return " ".join((_get_body(parsed, "plain") or "").split())[: markup.MAX_PREVIEW_CHARACTERS]


def store_mail(reading: ParsedMail, mail_from: str, rcpt_to: str, raw: bytes) -> int:
    """Store an email and return its id; returns 0 if its recipient was erased meanwhile."""
    require_write_transaction()
    if Message.select().where(Message.id == reading.message_id, Message.recipient_key.is_null()).exists():
        return 0
    captured = CapturedMessage.create(
        mail_from=mail_from, rcpt_to=rcpt_to, size=len(raw), source=raw, received_at=clock.now_ms(),
        account=reading.account_id, message_id=reading.message_id, from_header=reading.from_header,
        subject=reading.subject, preview=reading.preview,
    )  # fmt: skip
    return int(captured.id)


def store_sms(text: OutgoingSms) -> int:
    """Store an SMS, once, and return its id; returns 0 if its recipient was erased meanwhile."""
    require_write_transaction()
    existing = fetch_one("SELECT id FROM captured_message WHERE message_id = ? AND channel = 'sms'", (text.id,))
    if existing is not None:
        return int(existing[0])
    row = fetch_one("SELECT account_id FROM message WHERE id = ? AND recipient_key IS NOT NULL", (text.id,))
    if row is None:
        return 0
    source = text.body.encode()
    captured = CapturedMessage.create(
        account=row[0], channel="sms", message_id=text.id, mail_from=text.sender, rcpt_to=text.to,
        from_header=text.sender, preview=" ".join(text.body.split())[:140], size=len(source), source=source,
        received_at=clock.now_ms(),
    )  # fmt: skip
    return int(captured.id)


def list_captured(
    account_id: int, number: int = 1, limit: int = 50, search: str | None = None, message_id: int | None = None,
    channel: str | None = None,
) -> Page:  # fmt: skip
    """Return a page of captured messages, newest first; `search` matches recipient, subject and the text of SMS."""
    query = CapturedMessage.select().where(
        CapturedMessage.account == account_id, CapturedMessage.id > get_cleared_id(account_id)
    )
    if channel is not None:
        query = query.where(CapturedMessage.channel == channel)
    if message_id is not None:
        query = query.where(CapturedMessage.message_id == message_id)
    if search and search.strip():
        text = search.strip()
        matches_sms = (CapturedMessage.channel == "sms") & CapturedMessage.preview.contains(text)
        query = query.where(
            CapturedMessage.rcpt_to.contains(text) | CapturedMessage.subject.contains(text) | matches_sms
        )
    return paginate(query.order_by(CapturedMessage.id.desc()), number, limit)


def get(account_id: int, captured_id: int) -> CapturedMessage:
    """Return a captured message; raises NotFound."""
    captured = CapturedMessage.get_or_none(CapturedMessage.account == account_id, CapturedMessage.id == captured_id)
    if captured is None or captured.id <= get_cleared_id(account_id):
        raise NotFound
    return captured


def clear(account_id: int) -> int:
    """Empty the inbox and return how many messages there were.

    They are hidden at once and deleted later in batches (`list_cleared`), so that no other writer waits.
    """
    require_write_transaction()
    sql = "SELECT count(*), max(id) FROM captured_message WHERE account_id = ? AND id > ?"
    [(count, last)] = rows(sql, (account_id, get_cleared_id(account_id)))
    if count:
        values = (f"{_CLEARED_SETTING}{account_id}", str(last), clock.now_ms())
        run(
            "INSERT INTO setting (name, value, updated_at) VALUES (?, ?, ?) "
            "ON CONFLICT (name) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at",
            values,
        )
        after_commit(lambda: signals.wake("cleanup"))
    return int(count)


def get_cleared_id(account_id: int) -> int:
    """Return the id of the last message that was cleared from the inbox of an account, or 0."""
    return int(scalar("SELECT value FROM setting WHERE name = ?", (f"{_CLEARED_SETTING}{account_id}",)) or 0)


def list_cleared(limit: int) -> list[int]:
    """Return the ids of some cleared messages."""
    ids = list[int]()
    for (account_id,) in rows("SELECT id FROM account"):
        sql = "SELECT id FROM captured_message WHERE account_id = ? AND id <= ? ORDER BY id LIMIT ?"
        ids += [number for (number,) in rows(sql, (account_id, get_cleared_id(account_id), limit - len(ids)))]
    return ids


def has_cleared() -> bool:
    """Return whether there are cleared messages to delete."""
    return bool(list_cleared(1))


def list_expired(limit: int) -> list[int]:
    """Return the ids of some messages past their retention; those of an account arrived in the order of their ids."""
    cutoff, ids = clock.now_ms() - RETENTION_MS, list[int]()
    for (account_id,) in rows("SELECT id FROM account"):
        sql = "SELECT id, received_at FROM captured_message WHERE account_id = ? ORDER BY id LIMIT ?"
        for number, received_at in rows(sql, (account_id, limit - len(ids))):
            if received_at >= cutoff:
                break
            ids.append(number)
    return ids


def delete(ids: list[int]) -> int:
    """Delete captured messages; the ledger is not affected."""
    require_write_transaction()
    return run(f"DELETE FROM captured_message WHERE id IN ({','.join(map(str, ids))})")


def parse_message(raw: bytes) -> EmailMessage:
    """Parse an email as a client would."""

    return message_from_bytes(bytes(raw), policy=policy.default)


def get_parts(captured: CapturedMessage) -> dict[str, Any]:
    """Return headers, HTML, text and source of a captured message; of an SMS its text and counts (`sms`)."""
    if captured.channel == "sms":
        text = bytes(captured.source).decode()
        return {"headers": [], "html": None, "text": text, "raw": text, "sms": segments.count_segments(text)}
    parsed = parse_message(captured.source)
    return {
        "headers": [(name, str(value)) for name, value in parsed.items()],
        "html": _get_body(parsed, "html"),
        "text": _get_body(parsed, "plain"),
        "raw": bytes(captured.source).decode("utf-8", "replace"),
        "sms": None,
    }


def _get_body(parsed: EmailMessage, subtype: str) -> str | None:
    part = parsed.get_body((subtype,))
    return part.get_content() if part is not None else None
