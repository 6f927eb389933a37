"""Queue emails that programs submit by SMTP, store them as they came, and write them as they are sent.

An email is stored once for all of its recipients (`RawMessage`), each of whom has a row in the ledger. Small emails are
stored in the database, so that the emails of several connections share a commit; large ones on disk, before their rows.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from appliance.accounts import access, limits
from appliance.content.designs import markup
from appliance.core import addresses, clock, signals
from appliance.core.addresses import Address
from appliance.core.i18n import gettext, gettext_noop
from appliance.sending.delivery import mime
from appliance.sending.messages import attachments, links, raw_mime, submission_limits, transactional
from appliance.sending.messages.compose import FilledMessage
from appliance.sending.messages.ledger import DUE_NOW
from appliance.sending.messages.raw_mime import RawEmail
from appliance.sending.transports import mime_parts
from appliance.settings import config
from appliance.storage.database import Records, fetch_one, rows, run
from appliance.storage.models import Message, MessageContent, RawMessage
from appliance.storage.transactions import after_commit, require_write_transaction

# An email of up to this size is stored in the database, a larger one on disk.
MAX_ROW_BYTES = 256 * 1024
# Within this time, an email with the same content, Message-ID and API key counts as the same message.
REPEAT_MS = clock.DAY_MS
NOT_STORED = gettext_noop("its content was deleted")
# How many characters of an email's HTML or text are displayed; and from how many characters of HTML a text is made,
# which takes longer.
MAX_SHOWN_CHARACTERS, MAX_CONVERTED_CHARACTERS = 1_000_000, 200_000
_IS_OPEN = "m.status IN ('queued', 'held', 'sending')"


class KeyRevoked(Exception):
    """The API key was revoked after the program had signed in with it."""


class Submission(NamedTuple):
    """An email to queue, with the recipients of its envelope; `sender` is the address in From.

    `sha256` is the name of its file (`store_large`), None for a small email.
    """

    account_id: int
    key_id: int
    is_test: bool
    email: RawEmail
    sender: str
    recipients: Sequence[Address]
    sha256: str | None = None
    hourly_limit: int = 0  # of recipients of the key; 0: no limit


class Queued(NamedTuple):
    """The result of queueing an email: the new messages, and for how many recipients it was queued before."""

    messages: Sequence[Message]
    repeated_count: int

    @property
    def is_refused(self) -> bool:
        """Return whether there are new messages, and none of their recipients may get it."""
        return bool(self.messages) and all(message.skip_reason for message in self.messages)


_CONTENTS, _RAW_MESSAGES = Records(MessageContent), Records(RawMessage)


def store_large(email: RawEmail) -> str | None:
    """Store an email of more than `MAX_ROW_BYTES` on disk and return its hash, or None for a smaller one.

    Call `attachments.release_raw` once its row is committed. Raises the errors of `attachments.store_raw`.
    """
    return attachments.store_raw(email.content) if len(email.content) > MAX_ROW_BYTES else None


def queue(submission: Submission) -> Queued:
    """Queue an email for each recipient who has not got it yet, and return the new messages.

    A recipient who may not get it has a row with the status `skipped`. Nothing is stored if no recipient is new. Raises
    KeyRevoked, or RateLimitExceeded at the hourly limit of the key or at a limit of the account.
    """
    require_write_transaction()
    email, now = submission.email, clock.now_ms()
    known = _find_repeated(submission, now)
    recipients = [address for address in submission.recipients if address.key not in known]
    submission_limits.take(submission.key_id, submission.hourly_limit, len(recipients))
    if recipients and not submission.is_test:
        limits.require_messages(submission.account_id, len(recipients))
    if not access.count_submission(submission.key_id, now, is_new=bool(recipients)):
        raise KeyRevoked
    if not recipients:
        return Queued((), len(submission.recipients))
    is_large = submission.sha256 is not None
    raw = RawMessage(
        account=submission.account_id, api_key=submission.key_id,
        message_id_hash=email.repeat_hash,
        recipient_count=len(recipients), size=len(email.content), created_at=now, sha256=submission.sha256,
        content=None if is_large else email.content,
    )  # fmt: skip
    _RAW_MESSAGES.insert(raw)
    messages: list[Message] = []
    for address in recipients:
        message = _insert_message(submission, address, now)
        messages.append(message)
        is_alone = len(recipients) == 1
        _CONTENTS.insert(
            MessageContent(
                message=message.id, subject=email.subject, data=email.data, raw_message=raw.id,
                kind=None if is_alone else _find_kind(email, address),
                first_message_id=None if is_alone else messages[0].id,
            )
        )  # fmt: skip
    if not submission.is_test:
        limits.note_messages(submission.account_id, sum(not message.skip_reason for message in messages))
    after_commit(lambda: signals.wake("outbox"))
    return Queued(messages, len(submission.recipients) - len(recipients))


def _find_repeated(submission: Submission, now: int) -> set[str]:
    """Return the normal forms of the addresses that this email was queued for already, with this key.

    Recipients who were refused, or could not be reached, are considered again.
    """
    if submission.email.repeat_hash is None:
        return set()
    # By the other index, SQLite would read all emails of the key of this day.
    sql = (
        "SELECT m.recipient_key FROM raw_message r INDEXED BY raw_message_repeated "
        "JOIN message_content c ON c.raw_message_id = r.id "
        "JOIN message m ON m.id = c.message_id WHERE r.api_key_id = ? AND r.message_id_hash = ? AND r.created_at > ? "
        "AND m.status NOT IN ('skipped', 'failed')"
    )
    return {key for (key,) in rows(sql, (submission.key_id, submission.email.repeat_hash, now - REPEAT_MS))}


def _insert_message(submission: Submission, address: Address, now: int) -> Message:
    email = submission.email
    channel = transactional.find_channel(submission.account_id, address)
    reason = transactional.find_refusal_reason(
        submission.account_id, address, channel, transactional=not email.is_marketing
    )
    message = Message(
        account=submission.account_id, contact=channel.contact_id if channel else None, channel="email",
        recipient=address.value, recipient_key=address.key, sender=submission.sender, subject=email.subject,
        status="skipped" if reason else "queued", skip_reason=reason, source_type="transactional",
        transactional=not email.is_marketing, test=submission.is_test,
        provider="capture" if submission.is_test else config.current().email.transport, tags=email.tags,
        due_at=None if reason else DUE_NOW, created_at=now, updated_at=now,
    )  # fmt: skip
    transactional.insert_single(message)
    return message


def _find_kind(email: RawEmail, address: Address) -> str:
    names = {address.key, address.value.lower()}
    return next((kind for kind, visible in email.visible.items() if names & visible), "bcc")


# The bytes that are sent: the email as it came, with headers that it lacks before its own.


class StoredEmail(NamedTuple):
    """A submitted email of a message: its bytes as stored, its From address and subject, and the id for Message-ID."""

    content: bytes
    sender: str
    subject: str
    first_message_id: int


_SELECT_STORED = (
    "SELECT r.content, r.sha256, m.sender, c.subject, coalesce(c.first_message_id, m.id) FROM message_content c "
    "JOIN message m ON m.id = c.message_id JOIN raw_message r ON r.id = c.raw_message_id WHERE c.message_id = ?"
)


def fetch(message_id: int) -> StoredEmail | None:
    """Return the submitted email of a message, None for a message of another kind.

    Raises ValueError if its file was deleted.
    """
    row = fetch_one(_SELECT_STORED, (message_id,))
    if row is None:
        return None
    content, sha256, sender, subject, first_message_id = row
    try:
        stored = attachments.read_raw(content, sha256)
    except FileNotFoundError:
        raise ValueError(NOT_STORED) from None
    return StoredEmail(stored, sender or "", subject or "", first_message_id)


def complete(stored: StoredEmail, created_at: int, headers: Iterable[tuple[str, str]]) -> tuple[bytes, str]:
    """Return the bytes to send and their Message-ID without brackets: the stored ones after `headers`.

    Date, Message-ID and From are added if they are missing. Date is the time of the submission, `created_at` in ms.
    """
    names = raw_mime.list_names(stored.content)
    added = []
    if "date" not in names:
        added.append(("Date", mime.format_date(created_at // 1000)))
    message_id = raw_mime.find_message_id(stored.content) if "message-id" in names else None
    if message_id is None:
        domain = (addresses.to_ascii(stored.sender) or stored.sender).rpartition("@")[2]
        message_id = links.build_message_id(stored.first_message_id, domain)
        added.append(("Message-ID", f"<{message_id}>"))
    if "from" not in names:
        added.append(("From", addresses.to_ascii(stored.sender) or stored.sender))
    return mime.write_headers((*added, *headers)) + stored.content, message_id


def show(stored: StoredEmail) -> FilledMessage:
    """Return the content of a submitted email for displaying it; a part that it lacks is made from the other.

    If the parts cannot be read, the content is a sentence that says so. A large email is cut, and ends with a sentence
    that says so.
    """
    try:
        parts = mime_parts.parse_parts(stored.content)
    except ValueError:
        text = gettext("The content of this email cannot be displayed.")
        return FilledMessage(stored.subject, markup.text_to_html(text), text, None)
    is_large = max(len(parts.html or ""), len(parts.text)) > MAX_SHOWN_CHARACTERS
    text = parts.text[:MAX_SHOWN_CHARACTERS]
    html = markup.text_to_html(text) if parts.html is None else parts.html[:MAX_SHOWN_CHARACTERS]
    if not text and parts.html:
        text = markup.html_to_text(html[:MAX_CONVERTED_CHARACTERS])
    notice = gettext("This email is too large to be displayed in full.")
    if is_large or (not parts.text and len(html) > MAX_CONVERTED_CHARACTERS):
        text = f"{text}\n\n{notice}\n"
    if is_large:
        # A tag that was cut would take in the sentence.
        html = f"{html[: html.rfind('>') + 1] or html}{markup.text_to_html(notice)}"
    return FilledMessage(stored.subject, html, text, parts.sender.name or None)


def list_expired(limit: int) -> list[int]:
    """Return the ids of up to `limit` submitted emails whose messages were last changed before `RETENTION_MS`.

    An email of which a recipient was erased is expired once none of its messages is open. It is not rewritten, because
    its text may name that person too.
    """
    messages = "SELECT 1 FROM message_content c JOIN message m ON m.id = c.message_id WHERE c.raw_message_id = r.id AND"
    sql = (
        "SELECT r.id FROM raw_message r WHERE (r.created_at < :limit_at "
        f"AND NOT EXISTS ({messages} ({_IS_OPEN} OR m.updated_at >= :limit_at))) OR (r.recipient_count > 1 "
        "AND r.recipient_count > (SELECT count(*) FROM message_content c WHERE c.raw_message_id = r.id) "
        f"AND NOT EXISTS ({messages} {_IS_OPEN})) ORDER BY r.id LIMIT :limit"
    )
    expired = rows(sql, {"limit_at": clock.now_ms() - attachments.RETENTION_MS, "limit": limit})
    return [number for (number,) in expired]


def delete(ids: list[int]) -> int:
    """Delete submitted emails by id and return their number; their messages stay, without content."""
    require_write_transaction()
    return run(
        f"DELETE FROM raw_message WHERE id IN ({','.join(map(str, ids))}) AND NOT EXISTS (SELECT 1 FROM "
        f"message_content c JOIN message m ON m.id = c.message_id WHERE c.raw_message_id = raw_message.id "
        f"AND {_IS_OPEN})"
    )
