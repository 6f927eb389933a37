"""Takes in what somebody wrote us by SMS: once, with what it asks of us, and with our answer where there is one.

A message belongs to the account whose number it came to. Who wants to leave leaves every account that knows the number
(and comes back there with START); everything else concerns that one account. Unknown numbers make no contact.
"""

import logging
from typing import Any, NamedTuple

from appliance.audience.contacts import consent
from appliance.audience.contacts.records import CHANNELS
from appliance.content import brand as brands
from appliance.core import clock, wake_ups
from appliance.core.addresses import Address
from appliance.events import log as events
from appliance.events.log import Happened
from appliance.inbound.conversations import homes, leaving, words
from appliance.sending.messages.ledger import AT_ONCE
from appliance.sending.sms import gsm, keywords
from appliance.sending.sms.codes import Incoming as Heard
from appliance.sending.sms.keywords import Read
from appliance.settings import config
from appliance.storage.models import Account, Channel, MessageContent
from appliance.storage.models import Message as tables_Message
from appliance.storage.open import connection, fetch_one, rows, run, scalar
from appliance.storage.work import after_commit, writing

# Our own answers to STOP, START and HELP: one each, soon or never, and to nobody more than some in a day.

_HOUR_MS = 3_600_000
# Two machines that answer each other come to an end
_MAX_IN_A_DAY = 20
_MAX_SENDER_CHARACTERS = 60
_LATELY = (
    "SELECT count(*) FROM incoming WHERE account_id = ? AND sender = ? AND reply_id IS NOT NULL AND created_at > ? "
    "AND kind IN (SELECT value FROM json_each(?))"
)


def answer(
    account_id: int, incoming_id: int, meaning: str, contact_id: int | None, address: Address, sender: str, test: bool
) -> None:
    """Queue the answer to a message: from the number that it came to, whatever their consent is."""
    writing()
    kind = "stop" if meaning == "refusal" else meaning
    now = clock.now_ms()
    if kind == "help" and _lately(account_id, address, now - _HOUR_MS, '["help"]'):
        return
    if _lately(account_id, address, now - 24 * _HOUR_MS, '["stop","refusal","start","help"]') >= _MAX_IN_A_DAY:
        return
    account = Account.get_by_id(account_id)
    text = words.say(kind, account.locale, _company(account), account.email_reply_to or account.email_from_email)
    message = tables_Message.create(
        account=account, contact=contact_id, channel="sms", recipient=address.value, recipient_key=address.key,
        sender=sender or None, segments=gsm.count(text).parts,
        status="queued", source_type="system", transactional=True, test=test,
        provider="capture" if test else config.current().sms.transport, due_at=AT_ONCE, created_at=now, updated_at=now,
    )  # fmt: skip
    # As a value, which is never read as merge language
    MessageContent.create(message=message, body="{{ data.answer }}", data={"answer": text})
    run("UPDATE incoming SET reply_id = ? WHERE id = ?", (message.id, incoming_id))
    after_commit(lambda: wake_ups.ring("outbox"))


def _lately(account_id: int, address: Address, since: int, kinds: str) -> int:
    return int(scalar(_LATELY, (account_id, address.key, since, kinds)))


def _company(account: Account) -> str:
    name = brands.get(account.id).company_name or account.name
    return " ".join(name.split())[:_MAX_SENDER_CHARACTERS]


def text_of(message_id: int) -> str | None:
    """Return what one of our own answers says, or None if it is none."""
    found = fetch_one("SELECT json_extract(data, '$.answer') FROM message_content WHERE message_id = ?", (message_id,))
    return found[0] if found else None


# What flows wait to hear: whether a message is a keyword of one, and the event by which they hear it.

_WORDS = (
    "SELECT t.event, w.value FROM flow f JOIN trigger t ON t.flow_id = f.id, json_each(t.data, '$.keywords') w "
    "WHERE f.account_id = ? AND f.status = 'active' AND f.deleted_at IS NULL AND t.event IN ('message', 'keyword') "
    "AND json_type(t.data, '$.keywords') = 'array' AND w.type = 'text'"
)
# A live flow that is started by keywords and names none: any word that stands alone is one
_ANY = (
    "SELECT 1 FROM flow f JOIN trigger t ON t.flow_id = f.id WHERE f.account_id = ? AND f.status = 'active' "
    "AND f.deleted_at IS NULL AND t.event = 'keyword' AND coalesce(json_array_length(t.data, '$.keywords'), 0) = 0"
)
# What a number answered to messages of flows
_ANSWERED = (
    "SELECT count(*) FROM (SELECT 1 FROM incoming i JOIN message m ON m.id = i.answered_id WHERE i.account_id = ? "
    "AND i.sender = ? AND i.created_at > ? AND m.source_type = 'flow' LIMIT ?)"
)
_DAY_MS = 24 * 3_600_000


log = logging.getLogger("campanero.sms")


class Awaited(NamedTuple):
    """What a message means to flows: the events that tell of it, each with the keyword it is or begins with."""

    events: tuple[tuple[str, str | None], ...]

    @property
    def is_keyword(self) -> bool:
        """Return whether a flow waits for it as a keyword."""
        return self.events[0][0] == "keyword"

    @property
    def word(self) -> str | None:
        """The keyword by which it is known, if it is one."""
        return self.events[0][1]


def awaits_answer(account_id: int, body: str) -> Awaited:
    """Return what a message means to the flows of an account.

    It is a `keyword` where a live flow is started by keywords and names this one, or names none and this is a word
    alone; else a `message`; and both where flows of both kinds name it, so that each of them is started.
    """
    said = keywords.plain(body)
    first = said.partition(" ")[0]
    found: dict[str, str | None] = {}
    for event, word in rows(_WORDS, (account_id,)):
        known = keywords.plain(word)
        # The whole message says more than the word it begins with
        if known and known in (said, first) and (event not in found or known == said):
            found[event] = word.strip()
    if "keyword" not in found and said and first == said and fetch_one(_ANY, (account_id,)) is not None:
        found["keyword"] = said.upper()
    return Awaited(tuple(sorted(found.items())) or (("message", None),))


def is_machine(account_id: int, sender: str) -> bool:
    """Return whether a number has answered flows so often within a day that it must be a machine.

    What it writes starts no more flows, or the two would answer each other for ever, each time at a price.
    """
    since = clock.now_ms() - _DAY_MS
    count = int(scalar(_ANSWERED, (account_id, sender, since, _MAX_IN_A_DAY + 1)))
    if count == _MAX_IN_A_DAY:
        log.warning("a number answers the SMS of flows like a machine: for a day it starts none any more")
    return count >= _MAX_IN_A_DAY


def tell_events(
    account_id: int, contact_id: int | None, number: int, about: dict[str, Any], heard: Awaited, test: bool,
    quiet: bool = False,
) -> None:  # fmt: skip
    """Record the events of a message that came in, by which flows are started; `quiet`, by which none is."""
    events.record_many(
        [
            Happened(
                account_id, event, contact_id, {**about, "keyword": word}, resource_uid=f"incoming:{number}",
                test=test, quiet=quiet,
            )
            for event, word in heard.events
        ]
    )  # fmt: skip


_MAX_BODY_CHARACTERS, _MAX_NAME_CHARACTERS = 10_000, 64
_INSERT = (
    "INSERT INTO incoming (account_id, contact_id, provider, provider_id, sender, recipient, body, kind, "
    "keyword, answered_id, opted_out, test, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_KNOWN = "SELECT 1 FROM incoming WHERE provider_id = ? AND provider = ? LIMIT 1"
# What a message is stored as, by what it means
_KINDS = {"stop": "stop", "refusal": "refusal", "perhaps": "refusal", "start": "start", "help": "help"}


class Message(NamedTuple):
    """A message as it is acted on; `address` is None where it came from what is no phone number (a short code)."""

    provider: str
    provider_id: str | None
    sender: str
    address: Address | None
    to: str
    body: str
    answered: str | None
    test: bool


def receive(provider: str, heard: Heard, test: bool = False, account_id: int | None = None) -> bool:
    """Take in what somebody wrote; False if it was known already.

    `test` is what was written to a test: its events are tests, and its answer is captured. With `account_id` it is an
    account's own rehearsal, and concerns no other.
    """
    writing()
    message = _read(provider, heard, test)
    if message.provider_id is not None and fetch_one(_KNOWN, (message.provider_id, provider)) is not None:
        return False
    home = account_id if account_id is not None else homes.home(message.sender, message.to)
    message = message._replace(to=homes.spelled(home, message.to))
    read = _meaning(home, message)
    concerned = [home]
    if read.meaning in ("stop", "refusal", "start") and account_id is None:
        concerned += [one for one in homes.knowing(message.sender) if one != home]
    for account in concerned:
        _take(account, message if account == home else _bare(message, read), read, is_home=account == home)
    if read.meaning == "perhaps":
        log.warning(
            "an SMS may be a refusal in other words: somebody has to look at it (GET /v1/my/incoming?unseen=true)"
        )
    log.info("an SMS came in (%s) and concerns %s accounts", read.meaning, len(concerned))
    return True


def is_acted_on(account_id: int, sender: str, body: str) -> bool:
    """Return whether what somebody would write now is a word of theirs about their consent, or a cry for help."""
    message = _read("", Heard(None, sender, "", body), test=False)
    return _meaning(account_id, message).meaning not in ("other", "perhaps")


def _read(provider: str, heard: Heard, test: bool) -> Message:
    sender = _clean(heard.sender).strip()[:_MAX_NAME_CHARACTERS]
    address = homes.number(sender)
    return Message(
        provider, _clean(heard.provider_id)[:200] if heard.provider_id else None,
        address.key if address else sender, address, _clean(heard.to).strip()[:_MAX_NAME_CHARACTERS],
        _clean(heard.body)[:_MAX_BODY_CHARACTERS], heard.answered, test,
    )  # fmt: skip


def _bare(message: Message, read: Read) -> Message:
    """Return as much of a message as another account may know: that they leave or come back, not in which words."""
    return message._replace(to="", body="START" if read.meaning == "start" else "STOP")


def _clean(text: str) -> str:
    """Return a text without what no database and no page can hold."""
    return text.encode("utf-8", "replace").decode().replace("\0", "")


def _meaning(home: int, message: Message) -> Read:
    """Return what a message means; what its provider has acted on means that, whatever the words are."""
    read = keywords.read(message.body, config.current().sms.stop_words)
    said = (message.answered or "").strip().lower()
    if said in ("stop", "start", "help") and read.meaning != said:
        read = Read(said, said.upper())  # type: ignore[arg-type]  # one of the three
    if message.address is None:
        return Read("other")  # a machine, to whom nothing is ever sent
    if read.meaning == "yes":
        return Read("start", "YES") if leaving.has_left(message.address, home) else Read("other")
    if read.meaning == "start" and not leaving.may_return(message.address, home):
        return Read("other")
    return read


def _take(account_id: int, message: Message, read: Read, is_home: bool) -> None:
    """Write a message for one account, and do what it asks for there."""
    channel = _channel(account_id, message.address)
    # To another account that it leaves too it is no answer
    last = homes.last_to(account_id, message.sender, message.test) if message.address and is_home else None
    contact_id = channel.contact_id if channel is not None else None
    awaited = None
    if is_home and read.meaning in ("other", "perhaps"):
        awaited = awaits_answer(account_id, message.body)
    kind = _KINDS.get(read.meaning) or ("keyword" if awaited is not None and awaited.is_keyword else "message")
    keyword = awaited.word if awaited is not None else read.keyword if is_home else message.body
    quiet = awaited is not None and not message.test and is_machine(account_id, message.sender)
    connection().execute(
        _INSERT,
        (
            account_id, contact_id, message.provider, message.provider_id, message.sender, message.to, message.body,
            kind, keyword, last, read.meaning in ("stop", "refusal"), message.test, clock.now_ms(),
        ),
    )  # fmt: skip
    number = connection().last_insert_rowid()
    if channel is not None:
        _heard_from(channel)
    if message.address is not None and _changes(account_id, message, read, last, is_home) and is_home:
        answer(account_id, number, read.meaning, contact_id, message.address, message.to, message.test)
    if awaited is not None:
        about: dict[str, Any] = {"body": message.body, "message_id": last}
        tell_events(account_id, contact_id, number, about, awaited, message.test, quiet)


def _changes(account_id: int, message: Message, read: Read, last: int | None, is_home: bool) -> bool:
    """Do what a message asks for in an account; returns whether it is to be answered there."""
    assert message.address is not None
    said = leaving.Said(message.address, message.body, last, message.test)
    if read.meaning in ("stop", "refusal"):
        new = leaving.leave(account_id, said)
    elif read.meaning == "start":
        new = leaving.come_back(account_id, said, is_home)
    else:
        new = read.meaning == "help"
    return new and not message.answered


def _channel(account_id: int, address: Address | None) -> Channel | None:
    if address is None:
        return None
    found = CHANNELS.find("account_id = ? AND kind = 'phone' AND key = ?", (account_id, address.key))
    return found[0] if found else None


def _heard_from(channel: Channel) -> None:
    """Note that a person is there and has the number: that is all a confirmation could show."""
    now = clock.now_ms()
    run(
        "UPDATE channel SET verified_at = ?, updated_at = ? WHERE id = ? AND verified_at IS NULL",
        (now, now, channel.id),
    )
    consent.note_own_act(channel.contact_id)
