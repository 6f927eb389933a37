"""The built-in inbox: what the capture transport took instead of the world."""

from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any, NamedTuple

from appliance.content.designs import plaintext
from appliance.core import clock, wake_ups
from appliance.core.errors import NotFound
from appliance.core.pagination import Page, paginate
from appliance.sending.messages import links
from appliance.sending.sms import gsm
from appliance.sending.sms.gsm import Text
from appliance.storage.models import Captured, Message
from appliance.storage.open import fetch_one, rows, run, scalar
from appliance.storage.work import after_commit, writing

KEPT_MS = 90 * 24 * 3600 * 1000
# Up to which message the inbox of an account was emptied: nobody sees these any more, and they go by the bite
_EMPTIED = "inbox_emptied:"


class Reading(NamedTuple):
    """What a mail says of itself, and whose it is."""

    account_id: int
    message_id: int
    from_header: str
    subject: str
    preview: str


def read(raw: bytes) -> Reading | None:
    """Read a mail that is ours by its signed Message-ID, or None; parsing is never done on the writer."""
    parsed = parse(raw)
    number = links.message_of(str(parsed.get("Message-ID", "")))
    row = Message.get_or_none(Message.id == number) if number is not None else None
    if row is None:
        return None
    return Reading(
        row.account_id, row.id, str(parsed.get("From", "")), str(parsed.get("Subject", "")), _preview(parsed)
    )  # fmt: skip


def _preview(parsed: EmailMessage) -> str:
    """Return what an inbox shows after the subject: the preview text, else the first words."""
    html = _text(parsed, "html")
    if html is not None:
        return plaintext.inbox_line(html)
    return " ".join((_text(parsed, "plain") or "").split())[: plaintext.INBOX_LINE]


def store(reading: Reading, mail_from: str, rcpt_to: str, raw: bytes) -> int:
    """Keep a mail and answer its id; one that was under way when its person was erased is not kept (0)."""
    writing()
    if Message.select().where(Message.id == reading.message_id, Message.recipient_key.is_null()).exists():
        return 0
    kept = Captured.create(
        mail_from=mail_from, rcpt_to=rcpt_to, size=len(raw), source=raw, received_at=clock.now_ms(),
        account=reading.account_id, message_id=reading.message_id, from_header=reading.from_header,
        subject=reading.subject, preview=reading.preview,
    )  # fmt: skip
    return int(kept.id)


def keep(text: Text) -> int:
    """Keep an SMS, once, and answer its id; one that was under way when its person was erased is not kept (0)."""
    writing()
    known = fetch_one("SELECT id FROM captured WHERE message_id = ? AND channel = 'sms'", (text.id,))
    if known is not None:
        return int(known[0])
    row = fetch_one("SELECT account_id FROM message WHERE id = ? AND recipient_key IS NOT NULL", (text.id,))
    if row is None:
        return 0
    source = text.body.encode()
    kept = Captured.create(
        account=row[0], channel="sms", message_id=text.id, mail_from=text.sender, rcpt_to=text.to,
        from_header=text.sender, preview=" ".join(text.body.split())[:140], size=len(source), source=source,
        received_at=clock.now_ms(),
    )  # fmt: skip
    return int(kept.id)


def page(
    account_id: int, number: int = 1, limit: int = 50, search: str | None = None, message_id: int | None = None,
    channel: str | None = None,
) -> Page:  # fmt: skip
    """List what was captured, newest first; words are looked for in recipient and subject, or what an SMS says."""
    found = Captured.select().where(Captured.account == account_id, Captured.id > emptied_to(account_id))
    if channel is not None:
        found = found.where(Captured.channel == channel)
    if message_id is not None:
        found = found.where(Captured.message_id == message_id)
    if search and search.strip():
        words = search.strip()
        says = (Captured.channel == "sms") & Captured.preview.contains(words)
        found = found.where(Captured.rcpt_to.contains(words) | Captured.subject.contains(words) | says)
    return paginate(found.order_by(Captured.id.desc()), number, limit)


def get(account_id: int, captured_id: int) -> Captured:
    """Return a captured message; raises NotFound."""
    found = Captured.get_or_none(Captured.account == account_id, Captured.id == captured_id)
    if found is None or found.id <= emptied_to(account_id):
        raise NotFound
    return found


def clear(account_id: int) -> int:
    """Empty the inbox and answer how many there were.

    From now on nobody sees them; however many there are, no other writer waits for them to be dropped (`emptied`).
    """
    writing()
    sql = "SELECT count(*), max(id) FROM captured WHERE account_id = ? AND id > ?"
    [(number, last)] = rows(sql, (account_id, emptied_to(account_id)))
    if number:
        values = (f"{_EMPTIED}{account_id}", str(last), clock.now_ms())
        run(
            "INSERT INTO setting (name, value, updated_at) VALUES (?, ?, ?) "
            "ON CONFLICT (name) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at",
            values,
        )
        after_commit(lambda: wake_ups.ring("erasures"))
    return int(number)


def emptied_to(account_id: int) -> int:
    """Return the last message that the inbox of an account was emptied of, 0 if it never was."""
    return int(scalar("SELECT value FROM setting WHERE name = ?", (f"{_EMPTIED}{account_id}",)) or 0)


def emptied(most: int) -> list[int]:
    """Return some messages of inboxes that were emptied."""
    found = list[int]()
    for (account_id,) in rows("SELECT id FROM account"):
        sql = "SELECT id FROM captured WHERE account_id = ? AND id <= ? ORDER BY id LIMIT ?"
        found += [number for (number,) in rows(sql, (account_id, emptied_to(account_id), most - len(found)))]
    return found


def is_due() -> bool:
    """Return whether there are messages of an inbox that was emptied."""
    return bool(emptied(1))


def old(most: int) -> list[int]:
    """Return some messages that came to the inbox too long ago; those of an account came in the order of their ids."""
    before, found = clock.now_ms() - KEPT_MS, list[int]()
    for (account_id,) in rows("SELECT id FROM account"):
        sql = "SELECT id, received_at FROM captured WHERE account_id = ? ORDER BY id LIMIT ?"
        for number, at in rows(sql, (account_id, most - len(found))):
            if at >= before:
                break
            found.append(number)
    return found


def forget(some: list[int]) -> int:
    """Drop them; what was sent stays in the ledger."""
    writing()
    return run(f"DELETE FROM captured WHERE id IN ({','.join(map(str, some))})")


def parse(raw: bytes) -> EmailMessage:
    """Read a mail as a client would."""

    return message_from_bytes(bytes(raw), policy=policy.default)


def parts(captured: Captured) -> dict[str, Any]:
    """Return headers, HTML, text and source of a captured message; of an SMS its text, and what that takes (`sms`)."""
    if captured.channel == "sms":
        text = bytes(captured.source).decode()
        return {"headers": [], "html": None, "text": text, "raw": text, "sms": gsm.count(text)}
    parsed = parse(captured.source)
    return {
        "headers": [(name, str(value)) for name, value in parsed.items()],
        "html": _text(parsed, "html"),
        "text": _text(parsed, "plain"),
        "raw": bytes(captured.source).decode("utf-8", "replace"),
        "sms": None,
    }


def _text(parsed: EmailMessage, subtype: str) -> str | None:
    part = parsed.get_body((subtype,))
    return part.get_content() if part is not None else None
