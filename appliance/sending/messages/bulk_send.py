"""Send one email to many recipients at once, each with values of their own, for a program that has its own audience.

The program, such as Ghost, knows who subscribed to its newsletter, so no consent record is needed here. Addresses that
are suppressed, or that unsubscribed from the account's marketing, get no message (docs/decisions.md#7). The HTML and
text are stored once for all recipients (`BulkContent`), and all rows are written in one transaction.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from appliance.accounts import limits
from appliance.audience.consent import REASONS_BY_SEVERITY
from appliance.core import addresses, clock, crypto, signals
from appliance.core.addresses import Address
from appliance.core.errors import Faults, Invalid
from appliance.core.i18n import gettext
from appliance.events import log
from appliance.events.log import NewEvent
from appliance.sending.messages import attachments, message_request, transactional
from appliance.sending.messages.attachments import StoredFile
from appliance.sending.messages.compose import PreparedMessage
from appliance.sending.messages.ledger import FLOWS_DUE_NOW
from appliance.sending.messages.message_request import MessageRequest, get_text
from appliance.storage.database import rows
from appliance.storage.models import Account, BulkContent
from appliance.storage.transactions import after_commit, require_write_transaction

MAX_RECIPIENTS = 1_000
# The values and headers of one recipient, as JSON; those of all recipients together have at most `MAX_VALUES_BYTES`.
MAX_RECIPIENT_BYTES, MAX_VALUES_BYTES = 16_384, 8_000_000


class BulkRecipient(NamedTuple):
    """A recipient of a bulk email, with the values of its merge tags (`data`) and its custom headers."""

    address: str
    data: Mapping[str, Any]
    headers: Mapping[str, str]


class BulkEmail(NamedTuple):
    """An email to many recipients. `message` has the content; its own recipients, headers and data are not used."""

    message: MessageRequest
    recipients: Sequence[BulkRecipient]


class CheckedRecipient(NamedTuple):
    """A recipient with a valid address."""

    address: Address
    data: Mapping[str, Any]
    headers: Mapping[str, str]


def check_recipients(recipients: Sequence[BulkRecipient], faults: Faults) -> list[CheckedRecipient]:
    """Return the recipients; add the errors of addresses to `to[INDEX]`, and those of headers to `headers.NAME`.

    It takes some tenths of a second for `MAX_RECIPIENTS`, so call it outside of the write transaction.
    """
    if len(recipients) > MAX_RECIPIENTS:
        faults.add("to", gettext("is too long (maximum is %(limit)s recipients)", limit=MAX_RECIPIENTS))
        return []
    checked: list[CheckedRecipient] = []
    keys: set[str] = set()
    total = 0
    for index, recipient in enumerate(recipients):
        try:
            address = addresses.parse_email(recipient.address)
        except ValueError as error:
            faults.add(f"to[{index}]", str(error))
            continue
        if address.key in keys:
            faults.add(f"to[{index}]", gettext("is already a recipient"))
        keys.add(address.key)
        size = len(msgspec.json.encode((recipient.data, recipient.headers)))
        total += size
        if size > MAX_RECIPIENT_BYTES:
            faults.add(f"to[{index}]", gettext("is too long (maximum is %(limit)s bytes)", limit=MAX_RECIPIENT_BYTES))
        for name, value in recipient.headers.items():
            if fault := message_request.find_header_value_fault(name.lower(), value):
                faults.add(f"headers.{name}", fault)
        checked.append(CheckedRecipient(address, recipient.data, recipient.headers))
    for name in {name for recipient in recipients[:1] for name in recipient.headers}:
        if fault := message_request.find_header_name_fault(name.lower(), is_marketing=False):
            faults.add(f"headers.{name}", fault)
    if total > MAX_VALUES_BYTES:
        faults.add("to", gettext("is too long (maximum is %(limit)s bytes)", limit=MAX_VALUES_BYTES))
    return checked


def queue(
    account_id: int, message: MessageRequest, recipients: Sequence[CheckedRecipient], test: bool,
    prepared: PreparedMessage, files: Sequence[StoredFile] = (), can_read_contacts: bool = True,
) -> int:  # fmt: skip
    """Queue an email for each of the checked recipients and return the id of its `BulkContent`.

    The row of a recipient who may not get it is stored as `skipped`, with an event. The parameters are as for
    `transactional.queue_message`. Raises RateLimitExceeded at a limit of the account, and Invalid with all errors, or
    with the reason `transactional_disabled` or `sender_not_ready`.
    """
    require_write_transaction()
    account, faults = Account.get_by_id(account_id), Faults()
    validated = transactional.validate_request(account, message, faults, prepared, can_read_contacts)
    if not account.transactional_allowed:
        raise Invalid(
            {"base": [gettext("single messages are disabled in this account")]}, reason="transactional_disabled"
        )
    faults.check()
    if not test:
        transactional.require_sender(account, message, validated.template, recipients[0].address)
        limits.require_messages(account_id, len(recipients))
    now = clock.now_ms()
    fields = validated.fields
    bulk = BulkContent.create(account=account_id, body=fields["body"], text=fields["text"], created_at=now)
    is_held = isinstance(message.send_at, int) and message.send_at > now
    transport = transactional.get_transport(message, test)
    common = {
        "subject": fields["subject"], "status": "held" if is_held else "queued",
        "sender": transactional.get_sender(account, message, None, recipients[0].address, transport),
        "reply_to": get_text(message.reply_to), "provider": transport, "test": test, "now": now,
        "tags": msgspec.json.encode(message.tags).decode() if isinstance(message.tags, dict) else None,
        # Single messages, such as passwords, are sent before the thousands of a newsletter.
        "due_at": message.send_at if is_held else FLOWS_DUE_NOW,
        "account": account_id, "bulk": bulk.id, "from_name": fields["from_name"], "language": fields["language"],
        "tracks_opens": message.tracks_opens, "has_files": bool(files),
    }  # fmt: skip
    states = _find_states(account_id, [recipient.address.key for recipient in recipients])
    items = [
        (recipient.address.value, recipient.address.key, *states[recipient.address.key]) for recipient in recipients
    ]
    ids = {key: message_id for message_id, key in _run_set(_INSERT_MESSAGES, items, common)}
    contents = [(ids[item.address.key], dict(item.headers), dict(item.data)) for item in recipients]
    _run_set(_INSERT_CONTENTS, contents, common)
    skipped = [(ids[key], contact_id, reason) for _, key, contact_id, reason in items if reason is not None]
    log.record_many([
        NewEvent(account_id, "email_skipped", contact_id, {"message_id": message_id, "reason": reason},
                 f"message:{message_id}", test=test)
        for message_id, contact_id, reason in skipped
    ])  # fmt: skip
    if not test:
        limits.note_messages(account_id, len(recipients) - len(skipped))
    if files:
        left_out = {message_id for message_id, _, _ in skipped}
        attachments.attach([message_id for message_id in ids.values() if message_id not in left_out], files)
    after_commit(lambda: signals.wake("outbox"))
    return int(bulk.id)


# Items: (address, key, contact id, reason for which it is skipped).
_INSERT_MESSAGES = (
    "INSERT INTO message (account_id, contact_id, channel, recipient, recipient_key, sender, reply_to, subject, "
    "status, skip_reason, source_type, transactional, test, provider, tags, due_at, attempts, uncertain_count, "
    "created_at, updated_at) "
    "SELECT :account, value ->> 2, 'email', value ->> 0, value ->> 1, :sender, :reply_to, :subject, "
    "iif(value ->> 3 IS NULL, :status, 'skipped'), value ->> 3, 'transactional', 1, :test, :provider, :tags, "
    "iif(value ->> 3 IS NULL, :due_at, NULL), 0, 0, :now, :now FROM json_each(:items) ORDER BY key "
    "RETURNING id, recipient_key"
)
# Items: (message id, headers, data).
_INSERT_CONTENTS = (
    "INSERT INTO message_content (message_id, subject, headers, data, from_name, language, has_attachments, bulk_id, "
    "tracks_opens) SELECT value ->> 0, :subject, value -> 1, value -> 2, :from_name, :language, :has_files AND "
    "(SELECT status FROM message WHERE id = value ->> 0) <> 'skipped', :bulk, :tracks_opens FROM json_each(:items)"
)
_SELECT_CHANNELS = (
    "SELECT key, contact_id, opt_out_at IS NOT NULL FROM channel WHERE account_id = ? AND kind = 'email' "
    "AND key IN (SELECT value FROM json_each(?))"
)
_SELECT_SUPPRESSIONS = (
    "SELECT lower(hex(address_hash)), reason FROM suppression WHERE account_id = ? AND kind = 'email' "
    "AND address_hash IN (SELECT unhex(value) FROM json_each(?)) AND (expires_at IS NULL OR expires_at > ?)"
)
_SELECT_OPT_OUTS = (
    "SELECT lower(hex(address_hash)) FROM opt_out WHERE account_id = ? AND kind = 'email' "
    "AND address_hash IN (SELECT unhex(value) FROM json_each(?))"
)


def _run_set(sql: str, items: list[Any], common: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Run a statement for a list of items and return its rows; `common` are the values of its other parameters."""
    return rows(sql, {**common, "items": msgspec.json.encode(items).decode()})


def _find_states(account_id: int, keys: Sequence[str]) -> dict[str, tuple[int | None, str | None]]:
    """Return (contact id, reason not to send) of each address by its key."""
    channels = {
        key: (contact_id, has_opted_out)
        for key, contact_id, has_opted_out in rows(_SELECT_CHANNELS, (account_id, msgspec.json.encode(keys).decode()))
    }
    hashes = {key: crypto.hash_address("email", key).hex() for key in keys}
    encoded = msgspec.json.encode(list(hashes.values())).decode()
    reasons: dict[str, set[str]] = {}
    for hashed, reason in rows(_SELECT_SUPPRESSIONS, (account_id, encoded, clock.now_ms())):
        reasons.setdefault(hashed, set()).add(reason)
    opted_out = {row[0] for row in rows(_SELECT_OPT_OUTS, (account_id, encoded))}
    states: dict[str, tuple[int | None, str | None]] = {}
    for key, hashed in hashes.items():
        contact_id, has_left = channels.get(key, (None, False))
        worst = next((name for name in REASONS_BY_SEVERITY if name in reasons.get(hashed, ())), None)
        refusal = f"suppressed_{worst}" if worst else "unsubscribed" if has_left or hashed in opted_out else None
        states[key] = contact_id, refusal
    return states
