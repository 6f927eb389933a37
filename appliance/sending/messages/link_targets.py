"""Where the links of a message lead, found again when somebody follows one; nothing of it stands in the link itself."""

import logging
from collections.abc import Iterable
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import apsw
import msgspec
import peewee

from appliance.audience.contacts import store as contacts
from appliance.content import brand as brands
from appliance.content.designs import links, merge
from appliance.content.designs.merge import MergeError
from appliance.core import addresses, clock
from appliance.sending.messages import values
from appliance.storage.models import Account, Contact
from appliance.storage.open import fetch_one, rows

log = logging.getLogger("campanero.tracking")
# Campaigns and steps whose links are kept at hand
_MAX_KEPT = 256
_ASKED = (
    "SELECT m.id, m.account_id, m.campaign_id, m.flow_id, m.step_id, m.contact_id, m.test, m.sent_at, m.status, "
    "coalesce(c.tracking, 'aggregate'), a.privacy_ip, coalesce(r.chain_depth + 1, 0), r.version, m.channel "
    "FROM message m JOIN account a ON a.id = m.account_id LEFT JOIN contact c ON c.id = m.contact_id "
    "LEFT JOIN run r ON r.id = m.run_id WHERE m.id IN ({ids})"
)


class Wanted(NamedTuple):
    """What was asked for: a message's link by its number, or without one the picture that tells an open."""

    message_id: int
    number: int | None


class Found(NamedTuple):
    """A message as it matters to who counts, and where the link leads; `url` is None where it leads nowhere.

    `tracking` is what its contact chose by now. `links` is how many links the message has that lead through us.
    """

    message_id: int
    account_id: int
    campaign_id: int | None
    flow_id: int | None
    step_id: int | None
    contact_id: int | None
    test: bool
    sent_at: int | None
    status: str
    tracking: str
    privacy_ip: str
    chain_depth: int = 0  # of what is told about it
    version: int | None = None  # of the flow whose run sent it
    channel: str = "email"
    url: str | None = None
    links: int = 0

    @property
    def handed_over_at(self) -> int | None:
        """When it left; while that is being written it is now, and None where nobody knows."""
        return clock.now_ms() if self.sent_at is None and self.status == "sending" else self.sent_at


class _Source(NamedTuple):
    """The links of a campaign or step by number, and what its merge tags share."""

    urls: dict[int, str]
    shared: dict[str, Any]


class Targets:
    """Finds messages and where their links lead; used by one thread at a time."""

    def __init__(self) -> None:
        self._kept: dict[int | tuple[Any, ...], _Source] = {}

    def find(self, wanted: Iterable[Wanted]) -> dict[Wanted, Found]:
        """Return what is known of each that was asked for; what is not ours, or not there any more, is left out."""
        asked = set(wanted)
        ids = ",".join(str(one.message_id) for one in asked)
        known = {row[0]: Found(*row) for row in rows(_ASKED.format(ids=ids))}
        found: dict[Wanted, Found] = {}
        for one_wanted in asked:
            message = known.get(one_wanted.message_id)
            try:
                if message is not None:
                    found[one_wanted] = self._led(message, one_wanted.number)
            except (apsw.Error, peewee.PeeweeException):
                raise
            except Exception:
                # Whatever is wrong with this one, the others are led on
                log.exception("where a link of message %s leads cannot be found", one_wanted.message_id)
        return found

    def _led(self, message: Found, number: int | None) -> Found:
        """Return where a link of a message leads."""
        of = self._of(message)
        found = message._replace(links=len(of.urls))
        url = of.urls.get(number) if number is not None else None
        if url is not None and "{" in url:
            url = _filled(url, message, of.shared)
        return found if url is None else found._replace(url=sendable(url))

    def _of(self, message: Found) -> _Source:
        if message.campaign_id is None and message.version is None:
            return _single(message.message_id)
        source = message.campaign_id or (message.flow_id, message.version, message.step_id)
        kept = self._kept.get(source)
        if kept is None:
            if len(self._kept) >= _MAX_KEPT:
                self._kept.clear()
            kept = self._kept[source] = _of_step(source) if isinstance(source, tuple) else _of_campaign(source)
        return kept


def _of_campaign(campaign_id: int) -> _Source:
    numbered = rows("SELECT number, url FROM link WHERE campaign_id = ?", (campaign_id,))
    pinned = fetch_one("SELECT pinned FROM campaign WHERE id = ?", (campaign_id,))
    shared = msgspec.json.decode(pinned[0])["values"] if pinned and pinned[0] else {}
    return _Source(_targets(numbered), shared)


def _of_step(step: tuple[Any, ...]) -> _Source:
    pinned = fetch_one("SELECT pinned FROM step WHERE flow_id = ? AND version = ? AND action_id = ?", step)
    said = msgspec.json.decode(pinned[0]) if pinned and pinned[0] else {"links": [], "values": {}}
    return _Source(_targets(enumerate((url for url, _ in said["links"]), 1)), said["values"])


def _single(message_id: int) -> _Source:
    found = fetch_one("SELECT links, data FROM message_content WHERE message_id = ?", (message_id,))
    if found is None or found[0] is None:
        return _Source({}, {})
    return _Source(_targets(enumerate(msgspec.json.decode(found[0]), 1)), {"data": msgspec.json.decode(found[1])})


def _targets(numbered: Iterable[tuple[int, str]]) -> dict[int, str]:
    # Which of them lead through us was decided when the mail was made; a number that was never given leads no further
    # than its author wrote
    return {number: url for number, url in numbered if links.has_host(url)}


def _filled(url: str, message: Found, shared: dict[str, Any]) -> str | None:
    """Fill an address as its message would have; what is not known any more is left empty: the reader is sent on."""
    if message.campaign_id is None and message.version is None:
        shared = values.of_account(Account.get_by_id(message.account_id), brands.get(message.account_id)) | shared
    said = {**shared, **_person(message), **values.of_message(message.message_id)}
    if message.version is not None:
        asked = "SELECT r.event_data FROM message m JOIN run r ON r.id = m.run_id WHERE m.id = ?"
        begun = fetch_one(asked, (message.message_id,))
        said["event"] = msgspec.json.decode(begun[0]) if begun and begun[0] else {}
    try:
        return merge.compile_template(url, "url").render(said)
    except MergeError as error:
        log.warning("a link of message %s cannot be filled in: %s", message.message_id, error)
        return None


def _person(message: Found) -> dict[str, Any]:
    found = fetch_one("SELECT recipient FROM message WHERE id = ?", (message.message_id,))
    recipient, kind = found[0] if found else None, "phone" if message.channel == "sms" else "email"
    try:
        contact = Contact.get_or_none(Contact.id == message.contact_id) if message.contact_id is not None else None
        if contact is not None:
            contacts.load([contact])
        return values.of_contact(contact, recipient, kind)
    except Exception:
        # Whatever is wrong with what is kept of one, they and all who ask beside them are led on
        log.exception("contact %s cannot be read", message.contact_id)
        return values.of_contact(None, recipient, kind)


def sendable(url: str) -> str | None:
    """Return an address as it may stand in a header: as it is, but for what browsers encode before they ask.

    None for one that is no address of a page.
    """
    try:
        if not (url.isascii() and url.isprintable() and " " not in url):
            url = _encoded(url.translate({9: None, 10: None, 13: None}))
        parts = urlsplit(url)
    except ValueError:
        return None
    return url if parts.scheme.lower() in ("http", "https") and parts.hostname else None


def _encoded(url: str) -> str:
    """Encode a host by IDNA, and all else as UTF-8 in percents; what is encoded already stays."""
    scheme, _, rest = url.partition("://")
    host, rest = _cut(rest)
    if not host.isascii():
        before, at, name = host.rpartition("@")
        name, colon, port = name.partition(":")
        read = addresses.ascii_form(f"a@{name}")
        host = f"{quote(before, safe=':%')}{at}{read.rpartition('@')[2] if read else quote(name)}{colon}{port}"
    return f"{scheme}://{host}{quote(rest, safe=_KEPT)}"


# All that is printable and no space
_KEPT = "".join(map(chr, range(0x21, 0x7F)))


def _cut(rest: str) -> tuple[str, str]:
    end = min((place for place in map(rest.find, "/?#") if place >= 0), default=len(rest))
    return rest[:end], rest[end:]
