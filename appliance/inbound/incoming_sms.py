"""Receive SMS: match keywords, opt numbers out and in, record events that start flows, and queue automatic answers.

An SMS belongs to its home account: the account to whose number it was sent. An opt-out also applies to all other
accounts that have the sender's number, and START reverses it there. Everything else concerns the home account only. An
SMS from an unknown number creates no contact.
"""

import contextlib
import logging
import re
import unicodedata
from typing import Any, NamedTuple

from appliance.audience import consent, suppressions
from appliance.audience.consent import Evidence
from appliance.audience.contacts import store as contacts
from appliance.audience.suppressions import SuppressionCause
from appliance.content import brand as brands
from appliance.core import addresses, clock, crypto, i18n, recipient_texts, signals
from appliance.core.addresses import Address
from appliance.core.i18n import pgettext, pgettext_noop
from appliance.events import log as events
from appliance.events.log import NewEvent
from appliance.sending.messages.ledger import DUE_NOW
from appliance.sending.sms import keywords, segments
from appliance.sending.sms.error_codes import IncomingSms
from appliance.sending.sms.keywords import KeywordMatch
from appliance.settings import config
from appliance.storage.database import connection, fetch_one, rows, run, scalar
from appliance.storage.models import Account, Channel, MessageContent
from appliance.storage.models import Message as tables_Message
from appliance.storage.models.account import CHANNELS
from appliance.storage.transactions import after_commit, require_write_transaction

# Automatic answers are short and in the language of the account; those in Latin letters use only GSM-7 characters.

# {company} is the name of the sender, {help} the text `contact` with the address for questions, or nothing.
_ANSWERS = {
    "stop": pgettext_noop(
        "SMS", "{company}: You are unsubscribed and will get no more messages. Reply START to get them again."
    ),
    "start": pgettext_noop(
        "SMS",
        "{company}: You are subscribed again. Message frequency varies. Msg & data rates may apply. Reply HELP for "
        "help, STOP to unsubscribe.",
    ),
    "help": pgettext_noop(
        "SMS",
        "{company}: news and offers by SMS, message frequency varies. Msg & data rates may apply.{help} Reply STOP to "
        "unsubscribe.",
    ),
    "contact": pgettext_noop("SMS", " Help: {contact}."),
}


def keyword_answer_text(kind: str, language: str, company: str, contact: str | None) -> str:
    """Return the answer to a keyword (`stop`, `start` or `help`), in one of `i18n.LANGUAGES`.

    `contact` is the address for questions in the answer to HELP.
    """
    with i18n.use_language(language):
        answer, help_text = _ANSWERS[kind], _ANSWERS["contact"]
        help_contact = pgettext("SMS", help_text).format(contact=contact) if contact else ""
        return pgettext("SMS", answer).format(company=company, help=help_contact)


# STOP and START opt a number out and in, in one account (docs/decisions.md#9).

KEYWORD_SOURCE = "keyword"
_STOPPED_AT = (
    "SELECT created_at FROM suppression WHERE account_id = ? AND kind = 'phone' AND address_hash = ? "
    "AND reason = 'stop_keyword'"
)


class ConsentMessage(NamedTuple):
    """An incoming SMS that changes consent: its sender, its text, and the id of our last message to that number."""

    address: Address
    body: str
    message_id: int | None
    test: bool
    actor: str = "recipient"  # The user, if a user has marked the SMS as an opt-out.

    @property
    def evidence(self) -> Evidence:
        """Return the evidence for the consent change, with the text of the SMS."""
        return Evidence(KEYWORD_SOURCE, self.actor, text=self.body[:1000], message_id=self.message_id, test=self.test)


def opt_out_number(account_id: int, request: ConsentMessage) -> bool:
    """Suppress a number in an account because of a STOP; return False if a STOP was in force before."""
    require_write_transaction()
    cause = SuppressionCause("stop_keyword", KEYWORD_SOURCE, diagnostic=request.body[:200] or None)
    return suppressions.suppress(account_id, request.address, cause, request.evidence)[1]


def has_opted_out(address: Address, account_id: int) -> bool:
    """Return whether a STOP from a number is in force in an account."""
    return fetch_one(_STOPPED_AT, (account_id, _address_hash(address))) is not None


def can_opt_in(address: Address, account_id: int) -> bool:
    """Return whether START is an opt-in in an account: a contact has the number, or a STOP from it is in force."""
    query = "SELECT 1 FROM channel WHERE account_id = ? AND kind = 'phone' AND key = ?"
    return fetch_one(query, (account_id, address.key)) is not None or has_opted_out(address, account_id)


def opt_in_number(account_id: int, request: ConsentMessage, is_home: bool) -> bool:
    """Opt a number in because of a START, and return whether that changed anything.

    In the home account (`is_home`) the number of a contact is opted in. In another account it is opted in only if it
    was opted in before the STOP; otherwise only the STOP is lifted, as for a number without a contact. A complaint or
    an erasure prevents an opt-in.
    """
    require_write_transaction()
    stopped = fetch_one(_STOPPED_AT, (account_id, _address_hash(request.address)))
    channels = CHANNELS.find("account_id = ? AND kind = 'phone' AND key = ?", (account_id, request.address.key))
    if not channels:
        was_lifted = stopped is not None and consent.lift_stop_without_contact(
            account_id, request.address, request.evidence
        )
        return (
            was_lifted
            and consent.find_suppression_reason(account_id, "phone", _address_hash(request.address))
            not in consent.BLOCKING_REASONS
        )
    channel = channels[0]
    if is_home:
        was_in = channel.subscribed and stopped is None
        return consent.opt_in_by_recipient(channel, request.evidence) and not was_in
    if stopped is None:
        return False
    # In another account, a number stays not subscribed if it was so before the STOP.
    if channel.opt_in_at is not None and (channel.opt_out_at or 0) >= stopped[0]:
        return consent.opt_in_by_recipient(channel, request.evidence)
    consent.lift_suppressions(channel, ("stop_keyword",), "recipient", request.evidence)
    return True


def _address_hash(address: Address) -> bytes:
    return crypto.hash_address(address.kind, address.key)


# An SMS concerns its home account, and for an opt-out or opt-in also the other accounts that have the number.

_DIGITS = re.compile("[0-9]+")
# Selects the last message that an account sent to a number, except automatic answers.
_LAST_MESSAGE = (
    "SELECT id FROM message WHERE recipient_key = ? AND account_id = ? AND channel = 'sms' "
    "AND sent_at IS NOT NULL AND source_type <> 'system' AND test = ? ORDER BY sent_at DESC, id DESC LIMIT 1"
)
_LAST_WRITING_ACCOUNT = (
    "SELECT account_id FROM message WHERE recipient_key = ? AND account_id IN ({}) AND channel = 'sms' "
    "AND sent_at IS NOT NULL ORDER BY sent_at DESC, id DESC LIMIT 1"
)
_ACCOUNTS_KNOWING = (
    "SELECT id FROM account a WHERE EXISTS (SELECT 1 FROM channel c WHERE c.account_id = a.id AND c.kind = 'phone' "
    "AND c.key = :key) OR EXISTS (SELECT 1 FROM message m WHERE m.recipient_key = :key AND m.account_id = a.id "
    "AND m.channel = 'sms')"
)
_COUNTRIES = "SELECT DISTINCT country_code FROM account WHERE country_code IS NOT NULL ORDER BY country_code"


def find_home_account(sender: str, to: str) -> int:
    """Return the id of the home account of an SMS from `sender` to our number `to`.

    Candidates are the accounts that send from `to`, and after them those that send by a messaging service, whose
    numbers are not reported. If no account sends from `to`, or `to` is empty because the provider does not report it,
    all accounts are candidates. Of several candidates, the account is chosen that sent the last SMS to the sender, else
    one that knows the sender's number, else the first.
    """
    accounts = list(Account.select(Account.id, Account.sms_from).order_by(Account.id))
    default_sender = config.current().sms.twilio.from_
    senders = {row.id: row.sms_from or default_sender for row in accounts}
    key = addresses.get_sender_key(to)
    owners = [account_id for account_id, own in senders.items() if to and addresses.get_sender_key(own) == key]
    if owners:
        owners += [account_id for account_id, own in senders.items() if addresses.is_messaging_service(own)]
    if len(owners) == 1:
        return int(owners[0])
    candidates = owners or list(senders)
    last_writer = fetch_one(_LAST_WRITING_ACCOUNT.format(",".join("?" * len(candidates))), (sender, *candidates))
    if last_writer or len(candidates) == 1:
        return int(last_writer[0] if last_writer else candidates[0])
    known_ids = fetch_accounts_knowing(sender)
    return int(next((account_id for account_id in candidates if account_id in known_ids), candidates[0]))


def sender_as_configured(account_id: int, to: str) -> str:
    """Return the sender of automatic answers to an SMS that was sent to our number `to`.

    It is `to`, in the spelling of the account's setting if this has the same number.
    """
    configured = Account.get_by_id(account_id).sms_from or config.current().sms.twilio.from_
    return (
        str(configured) if configured and addresses.get_sender_key(configured) == addresses.get_sender_key(to) else to
    )


def fetch_accounts_knowing(sender: str) -> list[int]:
    """Return the ids of the accounts that have a contact with a number, or have messages to it."""
    return [row[0] for row in rows(_ACCOUNTS_KNOWING, {"key": sender})]


def parse_sender(sender: str) -> Address | None:
    """Return the phone number of a sender, or None for a short code or a name.

    Some providers omit the plus, put 00 or a URL scheme before the number, or write it as in its country: `07400 …`.
    Such a number is accepted only if an account has it, so that its STOP is not lost.
    """
    if "(0)" not in sender:  # a trunk zero, which is not part of the number
        with contextlib.suppress(ValueError):
            return addresses.parse_phone(sender)
    digits = "".join(_DIGITS.findall(unicodedata.normalize("NFKC", sender)))
    spellings = [(f"+{digits.removeprefix('00')}", None), (f"+{digits.removeprefix('011')}", None), (sender, None)]
    spellings += [(sender, country) for (country,) in rows(_COUNTRIES)]
    for text, country in spellings:
        with contextlib.suppress(ValueError):
            address = addresses.parse_written_phone(text, country)
            if fetch_accounts_knowing(address.key):
                return address
    return None


def find_last_message(account_id: int, sender: str, test: bool) -> int | None:
    """Return the id of the last SMS of an account to a number, or None. Automatic answers do not count.

    `test` says whether only test messages or only real ones count.
    """
    row = fetch_one(_LAST_MESSAGE, (sender, account_id, test))
    return row[0] if row else None


# STOP, START and HELP each get one automatic answer, up to a limit for each number and day.

_HOUR_MS = 3_600_000
# The limit for each number. Without it, two machines could answer each other endlessly.
_MAX_ANSWERS_PER_DAY = 20
_MAX_COMPANY_CHARACTERS = 60
_RECENT_ANSWERS = (
    "SELECT count(*) FROM incoming WHERE account_id = ? AND sender = ? AND reply_id IS NOT NULL AND created_at > ? "
    "AND kind IN (SELECT value FROM json_each(?))"
)


def queue_answer(
    account_id: int, incoming_id: int, meaning: str, contact_id: int | None, address: Address, sender: str, test: bool
) -> None:
    """Queue the automatic answer to an incoming SMS; it needs no consent. `sender` is our number that it is sent from.

    `test` marks the answer as a test. Nothing is queued if HELP was answered in the last hour, or if
    `_MAX_ANSWERS_PER_DAY` answers were queued for the number in the last day.
    """
    require_write_transaction()
    kind = "stop" if meaning == "refusal" else meaning
    now = clock.now_ms()
    if kind == "help" and _count_recent_answers(account_id, address, now - _HOUR_MS, '["help"]'):
        return
    if (
        _count_recent_answers(account_id, address, now - 24 * _HOUR_MS, '["stop","refusal","start","help"]')
        >= _MAX_ANSWERS_PER_DAY
    ):
        return
    account = Account.get_by_id(account_id)
    text = keyword_answer_text(
        kind,
        recipient_texts.choose_language(contacts.fetch_language(contact_id), account.locale),
        _company_name(account),
        account.email_reply_to or account.email_from_email,
    )
    message = tables_Message.create(
        account=account, contact=contact_id, channel="sms", recipient=address.value, recipient_key=address.key,
        sender=sender or None, segments=segments.count_segments(text).parts,
        status="queued", source_type="system", transactional=True, test=test,
        provider="capture" if test else config.current().sms.transport, due_at=DUE_NOW, created_at=now, updated_at=now,
    )  # fmt: skip
    # The answer is the value of a merge tag, so that a tag in the name of the company is not replaced.
    MessageContent.create(message=message, body="{{ data.answer }}", data={"answer": text})
    run("UPDATE incoming SET reply_id = ? WHERE id = ?", (message.id, incoming_id))
    after_commit(lambda: signals.wake("outbox"))


def _count_recent_answers(account_id: int, address: Address, since: int, kinds: str) -> int:
    return int(scalar(_RECENT_ANSWERS, (account_id, address.key, since, kinds)))


def _company_name(account: Account) -> str:
    name = brands.get(account.id).company_name or account.name
    return " ".join(name.split())[:_MAX_COMPANY_CHARACTERS]


# Flows are started by keywords, or by any incoming SMS.

_FLOW_KEYWORDS = (
    "SELECT t.event, w.value FROM flow f JOIN trigger t ON t.flow_id = f.id, json_each(t.data, '$.keywords') w "
    "WHERE f.account_id = ? AND f.status = 'active' AND f.deleted_at IS NULL AND t.event IN ('message', 'keyword') "
    "AND json_type(t.data, '$.keywords') = 'array' AND w.type = 'text'"
)
# Selects a row if an active flow is started by any keyword; then every SMS of one word is a keyword.
_ANY_KEYWORD = (
    "SELECT 1 FROM flow f JOIN trigger t ON t.flow_id = f.id WHERE f.account_id = ? AND f.status = 'active' "
    "AND f.deleted_at IS NULL AND t.event = 'keyword' AND coalesce(json_array_length(t.data, '$.keywords'), 0) = 0"
)
# Counts the incoming SMS from a number that answer messages of flows.
_FLOW_ANSWERS = (
    "SELECT count(*) FROM (SELECT 1 FROM incoming i JOIN message m ON m.id = i.answered_id WHERE i.account_id = ? "
    "AND i.sender = ? AND i.created_at > ? AND m.source_type = 'flow' LIMIT ?)"
)


log = logging.getLogger("campanero.sms")


class FlowMatch(NamedTuple):
    """The events to record for an incoming SMS: at least one (event, keyword or None), `keyword` before `message`."""

    events: tuple[tuple[str, str | None], ...]

    @property
    def is_keyword(self) -> bool:
        """Return whether the SMS is a keyword that starts flows."""
        return self.events[0][0] == "keyword"

    @property
    def word(self) -> str | None:
        """Return the keyword of the first event, or None."""
        return self.events[0][1]


def match_flows(account_id: int, body: str) -> FlowMatch:
    """Return the events that an incoming SMS causes for the active flows of an account.

    A keyword of a flow matches if it equals the text or its first word. For each kind of trigger, `keyword` and
    `message`, there is an event with the keyword that matches. If a flow starts by any keyword, every SMS of one word
    is a `keyword`. An SMS that matches nothing is a `message` without a keyword.
    """
    text = keywords.normalize(body)
    first_word = text.partition(" ")[0]
    keyword_by_event: dict[str, str | None] = {}
    for event, word in rows(_FLOW_KEYWORDS, (account_id,)):
        keyword = keywords.normalize(word)
        # A keyword that equals the whole text has precedence over one that equals its first word.
        if keyword and keyword in (text, first_word) and (event not in keyword_by_event or keyword == text):
            keyword_by_event[event] = word.strip()
    if (
        "keyword" not in keyword_by_event
        and text
        and first_word == text
        and fetch_one(_ANY_KEYWORD, (account_id,)) is not None
    ):
        keyword_by_event["keyword"] = text.upper()
    return FlowMatch(tuple(sorted(keyword_by_event.items())) or (("message", None),))


def is_machine(account_id: int, sender: str) -> bool:
    """Return whether a number is probably a machine: it answered `_MAX_ANSWERS_PER_DAY` SMS of flows in 24 hours.

    An SMS from such a number starts no flow, because flow and machine would answer each other endlessly.
    """
    since = clock.now_ms() - clock.DAY_MS
    count = int(scalar(_FLOW_ANSWERS, (account_id, sender, since, _MAX_ANSWERS_PER_DAY + 1)))
    if count == _MAX_ANSWERS_PER_DAY:
        log.warning("sms: too many answers from one number, which starts no flows for a day account=%s", account_id)
    return count >= _MAX_ANSWERS_PER_DAY


def record_events(
    account_id: int, contact_id: int | None, number: int, about: dict[str, Any], match: FlowMatch, test: bool,
    quiet: bool = False,
) -> None:  # fmt: skip
    """Record the events of the incoming SMS with the id `number`. They start flows unless they are `quiet`.

    `about` is the data of the events, to which the keyword is added. `test` marks the events as tests.
    """
    events.record_many(
        [
            NewEvent(
                account_id, event, contact_id, {**about, "keyword": word}, resource_uid=f"incoming:{number}",
                test=test, quiet=quiet,
            )
            for event, word in match.events
        ]
    )  # fmt: skip


_MAX_BODY_CHARACTERS, _MAX_NAME_CHARACTERS = 10_000, 64
_INSERT = (
    "INSERT INTO incoming (account_id, contact_id, provider, provider_id, sender, recipient, body, kind, "
    "keyword, answered_id, opted_out, test, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_IS_KNOWN = "SELECT 1 FROM incoming WHERE provider_id = ? AND provider = ? LIMIT 1"
# The column `kind` of an incoming SMS, by the meaning of its text
_KIND_OF_MEANING = {"stop": "stop", "refusal": "refusal", "perhaps": "refusal", "start": "start", "help": "help"}


class ReceivedSms(NamedTuple):
    """An incoming SMS.

    `address` is None if the sender is not a phone number, such as a short code. `to` is our number. `answered` is the
    keyword (STOP, START or HELP) that the provider has already answered, or None.
    """

    provider: str
    provider_id: str | None
    sender: str
    address: Address | None
    to: str
    body: str
    answered: str | None
    test: bool


def receive_sms(provider: str, incoming: IncomingSms, test: bool = False, account_id: int | None = None) -> bool:
    """Store an incoming SMS and apply it in all accounts that it concerns; return False if it was stored before.

    `test` marks an SMS that answers a test message: its events are marked as tests too, and the automatic answer is
    captured. With `account_id`, the SMS is a simulation in that account, and other accounts are not affected.
    """
    require_write_transaction()
    message = _parse(provider, incoming, test)
    if message.provider_id is not None and fetch_one(_IS_KNOWN, (message.provider_id, provider)) is not None:
        return False
    home = account_id if account_id is not None else find_home_account(message.sender, message.to)
    message = message._replace(to=sender_as_configured(home, message.to))
    match = _interpret(home, message)
    account_ids = [home]
    if match.meaning in ("stop", "refusal", "start") and account_id is None:
        account_ids += [known_id for known_id in fetch_accounts_knowing(message.sender) if known_id != home]
    for recipient_id in account_ids:
        _store_for_account(
            recipient_id,
            message if recipient_id == home else _redact(message, match),
            match,
            is_home=recipient_id == home,
        )
    if match.meaning == "perhaps":
        log.warning("sms: possible opt-out in free text received; review it (GET /v1/my/incoming?unseen=true)")
    log.info("sms: received meaning=%s accounts=%s", match.meaning, len(account_ids))
    return True


def is_consent_keyword(account_id: int, sender: str, body: str) -> bool:
    """Return whether a text from a number would now be an opt-out, an opt-in or a request for help."""
    message = _parse("", IncomingSms(None, sender, "", body), test=False)
    return _interpret(account_id, message).meaning not in ("other", "perhaps")


def _parse(provider: str, incoming: IncomingSms, test: bool) -> ReceivedSms:
    sender = _clean_text(incoming.sender).strip()[:_MAX_NAME_CHARACTERS]
    address = parse_sender(sender)
    return ReceivedSms(
        provider, _clean_text(incoming.provider_id)[:200] if incoming.provider_id else None,
        address.key if address else sender, address, _clean_text(incoming.to).strip()[:_MAX_NAME_CHARACTERS],
        _clean_text(incoming.body)[:_MAX_BODY_CHARACTERS], incoming.answered_keyword, test,
    )  # fmt: skip


def _redact(message: ReceivedSms, match: KeywordMatch) -> ReceivedSms:
    """Return an SMS for another account, with START or STOP as its text and without our number."""
    return message._replace(to="", body="START" if match.meaning == "start" else "STOP")


def _clean_text(text: str) -> str:
    """Return a text without NUL characters, and with ? for surrogates, which UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode().replace("\0", "")


def _interpret(home: int, message: ReceivedSms) -> KeywordMatch:
    """Return the meaning of an SMS in its home account; a keyword that the provider has answered has precedence."""
    match = keywords.match_keyword(message.body, config.current().sms.stop_words)
    handled = (message.answered or "").strip().lower()
    if handled in ("stop", "start", "help") and match.meaning != handled:
        match = KeywordMatch(handled, handled.upper())  # type: ignore[arg-type]  # one of the three
    if message.address is None:
        return KeywordMatch("other")  # Nothing is ever sent to a short code, so it cannot opt out.
    if match.meaning == "yes":
        return KeywordMatch("start", "YES") if has_opted_out(message.address, home) else KeywordMatch("other")
    if match.meaning == "start" and not can_opt_in(message.address, home):
        return KeywordMatch("other")
    return match


def _store_for_account(account_id: int, message: ReceivedSms, match: KeywordMatch, is_home: bool) -> None:
    """Store an SMS for one account and apply its keyword there.

    In the home account, also queue the automatic answer, and record the events that start flows.
    """
    channel = _find_channel(account_id, message.address)
    # In another account, the SMS is only an opt-out or opt-in and answers no message.
    last_message_id = (
        find_last_message(account_id, message.sender, message.test) if message.address and is_home else None
    )
    contact_id = channel.contact_id if channel is not None else None
    flow_match = None
    if is_home and match.meaning in ("other", "perhaps"):
        flow_match = match_flows(account_id, message.body)
    kind = _KIND_OF_MEANING.get(match.meaning) or (
        "keyword" if flow_match is not None and flow_match.is_keyword else "message"
    )
    keyword = flow_match.word if flow_match is not None else match.keyword if is_home else message.body
    quiet = flow_match is not None and not message.test and is_machine(account_id, message.sender)
    connection().execute(
        _INSERT,
        (
            account_id, contact_id, message.provider, message.provider_id, message.sender, message.to, message.body,
            kind, keyword, last_message_id, match.meaning in ("stop", "refusal"), message.test, clock.now_ms(),
        ),
    )  # fmt: skip
    incoming_id = connection().last_insert_rowid()
    if channel is not None:
        _mark_verified(channel)
    if message.address is not None and _apply_keyword(account_id, message, match, last_message_id, is_home) and is_home:
        queue_answer(account_id, incoming_id, match.meaning, contact_id, message.address, message.to, message.test)
    if flow_match is not None:
        data: dict[str, Any] = {"body": message.body, "message_id": last_message_id}
        record_events(account_id, contact_id, incoming_id, data, flow_match, message.test, quiet)


def _apply_keyword(
    account_id: int, message: ReceivedSms, match: KeywordMatch, last_message_id: int | None, is_home: bool
) -> bool:
    """Apply the keyword of an SMS in an account, and return whether it needs an automatic answer."""
    assert message.address is not None
    request = ConsentMessage(message.address, message.body, last_message_id, message.test)
    if match.meaning in ("stop", "refusal"):
        is_answered = opt_out_number(account_id, request)
    elif match.meaning == "start":
        is_answered = opt_in_number(account_id, request, is_home)
    else:
        is_answered = match.meaning == "help"
    return is_answered and not message.answered


def _find_channel(account_id: int, address: Address | None) -> Channel | None:
    if address is None:
        return None
    channels = CHANNELS.find("account_id = ? AND kind = 'phone' AND key = ?", (account_id, address.key))
    return channels[0] if channels else None


def _mark_verified(channel: Channel) -> None:
    """Mark a channel as verified: an SMS from a number proves that its sender owns it, as a confirmation does."""
    now = clock.now_ms()
    run(
        "UPDATE channel SET verified_at = ?, updated_at = ? WHERE id = ? AND verified_at IS NULL",
        (now, now, channel.id),
    )
    consent.touch_last_interaction(channel.contact_id)
