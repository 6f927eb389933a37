"""The built-in inbox: messages that the capture transport stores instead of sending."""

from typing import Any, NamedTuple

from appliance.content.designs import markup
from appliance.core import clock, signals
from appliance.core.errors import NotFound
from appliance.sending.messages import attachments, links
from appliance.sending.sms import segments
from appliance.sending.sms.segments import OutgoingSms
from appliance.sending.transports import mime_parts
from appliance.storage.database import Page, fetch_one, paginate, rows, run, scalar
from appliance.storage.models import CapturedMessage, Message
from appliance.storage.transactions import after_commit, require_write_transaction

RETENTION_MS = 90 * clock.DAY_MS
# Prefix of the setting (one per account) that stores the id of the last cleared message. Messages up to this id are
# hidden, and deleted in batches.
_CLEARED_SETTING = "inbox_emptied:"


class ParsedMail(NamedTuple):
    """The From, subject and preview text of a captured email, and the id of its message."""

    message_id: int
    from_header: str
    subject: str
    preview: str


def parse_mail(raw: bytes, mail_from: str) -> ParsedMail | None:
    """Parse an email, or return None if its return path does not name a message of this installation.

    The Message-ID may be that of a program which submitted the email. Parsing is slow, so call it outside of the
    writer thread.
    """
    number = links.read_return_path(mail_from.partition("@")[0])
    if number is None:
        return None
    headers = {name.lower(): value for name, value in reversed(mime_parts.read_headers(raw))}
    return ParsedMail(number, headers.get("from", ""), headers.get("subject", ""), _preview(raw))


def _preview(raw: bytes) -> str:
    """Return the preview text of an HTML email, or the first `MAX_PREVIEW_CHARACTERS` of a plain text email.

    Lists show it to all readers, so it has no links to pages for recipients.
    """
    html, plain = mime_parts.read_bodies(raw)
    if html is not None:
        return markup.extract_preview_text(links.hide_recipient_links(html))
    text = links.hide_recipient_links(plain or "")
    return " ".join(text.split())[: markup.MAX_PREVIEW_CHARACTERS]


def store_mail(reading: ParsedMail, mail_from: str, rcpt_to: str, raw: bytes) -> int | None:
    """Store a captured email and return its id.

    Return 0 without storing it if its recipient was erased in the meantime, or None if its message does not exist.
    `mail_from` and `rcpt_to` are the addresses of the SMTP envelope.
    """
    require_write_transaction()
    row = fetch_one("SELECT account_id, recipient_key FROM message WHERE id = ?", (reading.message_id,))
    if row is None:
        return None
    account_id, recipient_key = row
    if recipient_key is None:
        return 0
    captured = CapturedMessage.create(
        mail_from=mail_from, rcpt_to=rcpt_to, size=len(raw), source=raw, received_at=clock.now_ms(),
        account=account_id, message_id=reading.message_id, from_header=reading.from_header,
        subject=reading.subject, preview=reading.preview,
    )  # fmt: skip
    return int(captured.id)


def store_sms(text: OutgoingSms) -> int:
    """Store a captured SMS and return its id, or 0 if its recipient was erased in the meantime.

    An SMS that is stored already is not stored again: its existing id is returned.
    """
    require_write_transaction()
    existing = fetch_one("SELECT id FROM captured_message WHERE message_id = ? AND channel = 'sms'", (text.id,))
    if existing is not None:
        return int(existing[0])
    row = fetch_one("SELECT account_id FROM message WHERE id = ? AND recipient_key IS NOT NULL", (text.id,))
    if row is None:
        return 0
    source, preview = text.body.encode(), links.hide_recipient_links(" ".join(text.body.split()))[:140]
    captured = CapturedMessage.create(
        account=row[0], channel="sms", message_id=text.id, mail_from=text.sender, rcpt_to=text.to,
        from_header=text.sender, preview=preview, size=len(source), source=source,
        received_at=clock.now_ms(),
    )  # fmt: skip
    return int(captured.id)


def list_captured(
    account_id: int, number: int = 1, limit: int = 50, search: str | None = None, message_id: int | None = None,
    channel: str | None = None, campaign_id: int | None = None,
) -> Page:  # fmt: skip
    """Return page `number` of an account's captured messages, newest first, without cleared ones.

    `search` matches a part of the recipient, the subject or the text of an SMS. `message_id` is an id of the ledger.
    """
    query = CapturedMessage.select().where(
        CapturedMessage.account == account_id, CapturedMessage.id > get_cleared_id(account_id)
    )
    if channel is not None:
        query = query.where(CapturedMessage.channel == channel)
    if message_id is not None:
        query = query.where(CapturedMessage.message_id == message_id)
    if campaign_id is not None:
        messages = Message.select(Message.id).where(Message.campaign == campaign_id)
        query = query.where(CapturedMessage.message_id.in_(messages))
    if search and search.strip():
        text = search.strip()
        matches_sms = (CapturedMessage.channel == "sms") & CapturedMessage.preview.contains(text)
        query = query.where(
            CapturedMessage.rcpt_to.contains(text) | CapturedMessage.subject.contains(text) | matches_sms
        )
    return paginate(query.order_by(CapturedMessage.id.desc()), number, limit)


def get(account_id: int, captured_id: int) -> CapturedMessage:
    """Return a captured message. Raises NotFound, also if it was cleared."""
    captured = CapturedMessage.get_or_none(CapturedMessage.account == account_id, CapturedMessage.id == captured_id)
    if captured is None or captured.id <= get_cleared_id(account_id):
        raise NotFound
    return captured


def clear(account_id: int) -> int:
    """Clear an account's inbox and return the number of messages cleared.

    Cleared messages are hidden at once and deleted later in batches (`list_cleared`), so that other writes are not
    delayed.
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
    """Return the id of the last message cleared from an account's inbox, or 0 if it was never cleared."""
    return int(scalar("SELECT value FROM setting WHERE name = ?", (f"{_CLEARED_SETTING}{account_id}",)) or 0)


def list_cleared(limit: int) -> list[int]:
    """Return the ids of up to `limit` cleared messages that are not deleted yet, of all accounts."""
    ids = list[int]()
    for (account_id,) in rows("SELECT id FROM account"):
        sql = "SELECT id FROM captured_message WHERE account_id = ? AND id <= ? ORDER BY id LIMIT ?"
        ids += [number for (number,) in rows(sql, (account_id, get_cleared_id(account_id), limit - len(ids)))]
    return ids


def has_cleared() -> bool:
    """Return whether any account has cleared messages that are not deleted yet."""
    return bool(list_cleared(1))


def list_expired(limit: int) -> list[int]:
    """Return the ids of up to `limit` captured messages older than `RETENTION_MS`, of all accounts."""
    cutoff, ids = clock.now_ms() - RETENTION_MS, list[int]()
    for (account_id,) in rows("SELECT id FROM account"):
        sql = "SELECT id, received_at FROM captured_message WHERE account_id = ? ORDER BY id LIMIT ?"
        for number, received_at in rows(sql, (account_id, limit - len(ids))):
            if received_at >= cutoff:
                break
            ids.append(number)
    return ids


def delete(ids: list[int]) -> int:
    """Delete captured messages by id and return their number; rows of the ledger are not changed."""
    require_write_transaction()
    return run(f"DELETE FROM captured_message WHERE id IN ({','.join(map(str, ids))})")


def get_parts(captured: CapturedMessage, can_write_contacts: bool) -> dict[str, Any]:
    """Return the content of a captured message as a dict with the keys `headers`, `html`, `text`, `raw` and `sms`.

    `headers` is a list of (name, value). `html` or `text` is None if an email has no such part. `sms` is the
    `SegmentCount` of an SMS, None for an email. Without `can_write_contacts`, the tokens of links to pages for
    recipients are hidden.
    """
    show = str if can_write_contacts else links.hide_recipient_links
    if captured.channel == "sms":
        text = bytes(captured.source).decode()
        return {
            "headers": [], "html": None, "text": show(text), "raw": show(text), "sms": segments.count_segments(text),
        }  # fmt: skip
    html, text_part = mime_parts.read_bodies(captured.source)
    return {
        "headers": [(name, show(str(value))) for name, value in mime_parts.read_headers(captured.source)],
        "html": None if html is None else show(html),
        "text": None if text_part is None else show(text_part),
        "raw": show(attachments.hide_contents(bytes(captured.source)).decode("utf-8", "replace")),
        "sms": None,
    }
