"""Takes in what somebody wrote us by SMS: once, with what it asks of us, and with our answer where there is one.

A message belongs to the account whose number it came to. Who wants to leave leaves every account that knows the number
(and comes back there with START); everything else concerns that one account. Unknown numbers make no contact.
"""

import logging
from typing import Any, NamedTuple

from appliance import clock, config
from appliance.addresses import Address
from appliance.contacts import choices
from appliance.contacts.records import CHANNELS
from appliance.conversations import answering, homes, leaving, triggering
from appliance.db.open import connection, one, run
from appliance.db.work import writing
from appliance.sms import keywords
from appliance.sms.keywords import Read
from appliance.sms.told import Incoming as Heard
from appliance.tables import Channel

log = logging.getLogger("campanero.sms")
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
    if message.provider_id is not None and one(_KNOWN, (message.provider_id, provider)) is not None:
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
        awaited = triggering.awaited(account_id, message.body)
    kind = _KINDS.get(read.meaning) or ("keyword" if awaited is not None and awaited.is_keyword else "message")
    keyword = awaited.word if awaited is not None else read.keyword if is_home else message.body
    quiet = awaited is not None and not message.test and triggering.is_machine(account_id, message.sender)
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
        answering.answer(account_id, number, read.meaning, contact_id, message.address, message.to, message.test)
    if awaited is not None:
        about: dict[str, Any] = {"body": message.body, "message_id": last}
        triggering.tell(account_id, contact_id, number, about, awaited, message.test, quiet)


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
    choices.seen(channel.contact_id)
