"""Signed links, addresses and headers of a message, and the targets of its tracked links."""

import logging
import re
import time
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import apsw
import msgspec
import peewee

from appliance.audience.contacts import store as contacts
from appliance.content import brand as brands
from appliance.content.designs import links as designs_links
from appliance.content.designs import merge
from appliance.content.designs.merge_limits import MAX_LINK_SECONDS, TOO_SLOW, MergeError, render_deadline
from appliance.core import addresses, clock, crypto
from appliance.sending.messages import merge_tags
from appliance.settings import config, transports
from appliance.storage.database import fetch_one, rows
from appliance.storage.models import Account, Contact
from appliance.storage.models.message import NO_CONTACT_ID

LINK_NAMES = frozenset({"unsubscribe_url", "preferences_url", "view_url"})
# The mail services that report outcomes by a webhook (`email.hooks`): the header by which each knows a message, its
# text, and the kinds of transports for which it is written.
_HOOK_HEADERS = (
    ("postmark", "X-PM-Metadata-campanero", "{}", ("relay", "postmark")),
    ("sendgrid", "X-SMTPAPI", '{{"unique_args": {{"campanero": "{}"}}}}', ("relay", "sendgrid")),
    ("brevo", "X-Mailin-custom", "{}", ("relay",)),
    ("mailjet", "X-MJ-CustomID", "{}", ("relay",)),
)


def get_link_values(base_url: str, message_id: int, names: Collection[str] = LINK_NAMES) -> dict[str, Any]:
    """Return the URLs of a message's pages as merge tag values by name, for `names` out of `LINK_NAMES`.

    `base_url` is that of the account (`public_urls.base_url_of`). Previews pass 0 as the message id.
    """
    return {name: _LINK_BUILDERS[name](base_url, message_id) for name in names}


UNSUBSCRIBE, VIEW, MESSAGE_ID, BOUNCE = "u", "v", "mid", "b"
PREFERENCES, CONFIRM, LEAVE = "p", "d", "l"
CLICK, OPEN = "c", "o"
# 64 bits are enough: a forged token (one guess in 2^64) could only count a false click or open.
_MAC_BYTES = 8
_TOKEN_CHARACTERS = 19  # 48 bits of the message's id, 64 of its MAC
_LINK_NUMBER = re.compile(r"[1-9][0-9]{0,5}")


def build_unsubscribe_url(base_url: str, message_id: int) -> str:
    """Return the URL of a message's unsubscribe page; a POST there opts out (RFC 8058)."""
    return f"{base_url}/u/{crypto.sign_token(UNSUBSCRIBE, message_id)}"


def build_preferences_url(base_url: str, message_id: int) -> str:
    """Return the URL of the preferences page for the recipient of a message."""
    return f"{base_url}/p/{crypto.sign_token(PREFERENCES, message_id)}"


def build_confirmation_url(base_url: str, confirmation_id: int) -> str:
    """Return the URL of the page that confirms a sign-up or an erasure request; a POST there confirms it."""
    return f"{base_url}/d/{crypto.sign_token(CONFIRM, confirmation_id)}"


def build_unsubscribe_address(message_id: int, host: str) -> str:
    """Return an email address for `List-Unsubscribe`: mail to it unsubscribes the recipient (RFC 2369, 3.2)."""
    return f"unsubscribe+{crypto.sign_hex_token(LEAVE, message_id, 16)}@{host}"


def build_view_url(base_url: str, message_id: int) -> str:
    """Return the URL that shows a message in the browser."""
    return f"{base_url}/v/{crypto.sign_token(VIEW, message_id)}"


# A link to a page for recipients: the purpose and the token, which quoted-printable may have broken into lines.
_RECIPIENT_LINK = re.compile(
    rf"/([{UNSUBSCRIBE}{PREFERENCES}{CONFIRM}{VIEW}])/((?:[A-Za-z0-9_-](?:=\r?\n)?){{30}})(?![A-Za-z0-9_-])"
)
_SOFT_BREAK = re.compile(r"=\r?\n")


def hide_recipient_links(text: str) -> str:
    """Return a message's text or source, with `hidden` in place of the tokens of its links to recipient pages.

    Use it for readers who may not change contacts: with such a link, anybody can opt the recipient in or out, confirm
    a sign-up or erase the contact, and the change is recorded as one by the recipient.
    """

    def hide(match: re.Match[str]) -> str:
        is_ours = crypto.read_token(match[1], _SOFT_BREAK.sub("", match[2])) is not None
        return f"/{match[1]}/hidden" if is_ours else match[0]

    return _RECIPIENT_LINK.sub(hide, text)


def find_confirmation_url(base_url: str, text: str) -> str | None:
    """Return the URL in a message's text at which its recipient confirms a sign-up or an erasure, or None."""
    tokens = (match[2] for match in _RECIPIENT_LINK.finditer(text) if match[1] == CONFIRM)
    token = next((token for token in tokens if crypto.read_token(CONFIRM, token) is not None), None)
    return token and f"{base_url}/{CONFIRM}/{token}"


_LINK_BUILDERS = {
    "unsubscribe_url": build_unsubscribe_url,
    "preferences_url": build_preferences_url,
    "view_url": build_view_url,
}


def build_message_id(message_id: int, domain: str) -> str:
    """Return a message's Message-ID without angle brackets; every attempt has the same one (docs/decisions.md#7)."""
    return f"{crypto.sign_token(MESSAGE_ID, message_id, 8)}@{domain}"


def read_message_id(internet_message_id_header: str) -> int | None:
    """Return the id of the message in a Message-ID header, or None if this installation did not create the header."""
    return crypto.read_token(MESSAGE_ID, internet_message_id_header.strip("<> ").partition("@")[0], 8)


def build_return_path(message_id: int, host: str) -> str:
    """Return the signed return path of a message; `host` receives the bounces."""
    return f"b+{crypto.sign_hex_token(BOUNCE, message_id)}@{host}"


def read_return_path(local_part: str) -> int | None:
    """Return the id of the message in the local part of a return path, or None if its token is invalid."""
    prefix, _, token = local_part.partition("+")
    return crypto.read_hex_token(BOUNCE, token) if prefix.lower() == "b" else None


# Signed addresses and links in the headers of returned mail, which show which message it is about.
_SIGNED_RETURN_PATH = re.compile(r"\b(b\+[0-9a-f]{20,40})@", re.IGNORECASE)
_SIGNED_UNSUBSCRIBE_ADDRESS = re.compile(r"unsubscribe\+([0-9a-f]{20,80})@", re.IGNORECASE)
_SIGNED_UNSUBSCRIBE_URL = re.compile(r"/u/([A-Za-z0-9_-]{20,60})")
_MAX_TOKENS = 10


def find_signed_addresses(text: str) -> set[int]:
    """Return the ids of the messages whose return path or unsubscribe address is in a text."""
    message_ids = {read_return_path(path) for path in _SIGNED_RETURN_PATH.findall(text)[:_MAX_TOKENS]}
    message_ids |= {
        crypto.read_hex_token(LEAVE, token, 16) for token in _SIGNED_UNSUBSCRIBE_ADDRESS.findall(text)[:_MAX_TOKENS]
    }
    return {message_id for message_id in message_ids if message_id is not None}


def find_unsubscribe_urls(text: str) -> set[int]:
    """Return the ids of the messages whose unsubscribe URL is in a text."""
    message_ids = {
        crypto.read_token(UNSUBSCRIBE, token) for token in _SIGNED_UNSUBSCRIBE_URL.findall(text)[:_MAX_TOKENS]
    }
    return {message_id for message_id in message_ids if message_id is not None}


def may_name_message(text: str) -> bool:
    """Return whether a text contains an unsubscribe URL of a message, or an address like those that are signed.

    An address counts even if its token is invalid, because only the first `_MAX_TOKENS` addresses are read.
    """
    return bool(
        _SIGNED_RETURN_PATH.search(text) or _SIGNED_UNSUBSCRIBE_ADDRESS.search(text) or find_unsubscribe_urls(text)
    )


def build_tracking_tokens(message_id: int) -> dict[str, str]:
    """Return a message's `click` and `open` tokens, which fill merge tags (`designs.links.TRACK_ROOT`)."""
    return {
        "click": build_click_token(message_id),
        "open": crypto.sign_token(OPEN, message_id, _MAC_BYTES),
    }


def build_click_token(message_id: int) -> str:
    """Return the token for the tracked links of a message, in characters of the SMS alphabet (GSM-7)."""
    return crypto.sign_token(CLICK, message_id, _MAC_BYTES)


def read_click_token(token: str) -> tuple[int, int] | None:
    """Return (message id, link number) of a tracked link, or None if the token is invalid."""
    number = token[_TOKEN_CHARACTERS + 1 :]
    if token[_TOKEN_CHARACTERS : _TOKEN_CHARACTERS + 1] != "-" or _LINK_NUMBER.fullmatch(number) is None:
        return None
    message_id = crypto.read_token(CLICK, token[:_TOKEN_CHARACTERS], _MAC_BYTES)
    return None if message_id is None else (message_id, int(number))


def read_open_token(token: str) -> int | None:
    """Return the message id of a tracking pixel, or None if the token is invalid."""
    return crypto.read_token(OPEN, token, _MAC_BYTES)


# The target of a tracked link is looked up when it is clicked, because the link itself does not contain it.

log = logging.getLogger("campanero.tracking")
# The number of campaigns and steps whose links a `LinkResolver` caches.
_MAX_CACHED_SOURCES = 256
# Links of clicks. Compiling and filling a URL counts towards the share of its account if it takes at least
# `_COSTLY_SECONDS`. An account may use `_MAX_SHARE` of the thread's time, and `_MAX_BURST_SECONDS` at once.
_COSTLY_SECONDS = 0.0005
_MAX_SHARE = 0.1
_MAX_BURST_SECONDS = 0.3
# For how long a link that could not be filled is not tried again, and the number of such links that are kept.
_FAILURE_SECONDS = 60.0
_MAX_FAILURES = 10_000
_TOO_SLOW = f"takes longer than {MAX_LINK_SECONDS * 1000:.0f} ms"

_TRACKED_MESSAGES = (
    "SELECT m.id, m.account_id, m.campaign_id, m.flow_id, m.step_id, m.contact_id, m.test, "
    "coalesce(m.sent_at, l.sent_at), CASE WHEN l.message_id IS NULL THEN m.status ELSE 'sending' END, "
    "coalesce(c.tracking, CASE WHEN (SELECT tracks_opens FROM message_content WHERE message_id = m.id) THEN 'full' "
    "ELSE 'aggregate' END), a.privacy_ip, coalesce(r.chain_depth + 1, 0), r.version, m.channel, a.public_url "
    "FROM message m JOIN account a ON a.id = m.account_id LEFT JOIN contact c ON c.id = m.contact_id "
    "LEFT JOIN run r ON r.id = m.run_id LEFT JOIN send_log l ON l.message_id = m.id WHERE m.id IN ({ids})"
)


class LinkRequest(NamedTuple):
    """A request for a tracked link of a message, by the number of the link, or for the tracking pixel (None)."""

    message_id: int
    number: int | None


class TrackedMessage(NamedTuple):
    """The message of a tracked link, and the link's target.

    `url` is None for the tracking pixel, for an unknown link number, for a target that is not an http(s) URL and for a
    target whose merge tags cannot be filled in. `is_postponed` means that they were not filled in now because the
    account has used up its share of the thread (`ClickShares`). `tracking` is the contact's current tracking choice.
    `privacy_ip` and `public_url` are the account's settings. `links` is the number of tracked links in the message.
    `sent_at` is in milliseconds since 1970 UTC.
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
    chain_depth: int = 0  # of events about the message
    version: int | None = None  # of the flow whose run sent the message
    channel: str = "email"
    public_url: str | None = None
    url: str | None = None
    links: int = 0
    is_postponed: bool = False

    @property
    def accepted_at(self) -> int | None:
        """Return when the message was accepted, in milliseconds since 1970 UTC, or None if that is unknown.

        It is the present time while the message is being sent and its outcome is not stored yet.
        """
        return clock.now_ms() if self.sent_at is None and self.status == "sending" else self.sent_at


class _SourceLinks(NamedTuple):
    """The links of a campaign, step or single message by number, and the merge tag values of all its recipients."""

    urls: dict[int, str]
    shared: dict[str, Any]


class ClickShares:
    """The processor time that each account used to fill costly URLs, so that it does not delay others' clicks.

    It also stores, for `_FAILURE_SECONDS`, the links that could not be filled. Only one thread may use it at a time.
    """

    def __init__(self) -> None:
        self._used: dict[int, tuple[float, float]] = {}  # account id -> (seconds above its share, when)
        self._failures: dict[LinkRequest, float] = {}  # link -> when it is tried again

    def has_time(self, account_id: int) -> bool:
        """Return whether an account has time left to fill URLs now."""
        return self._get_used(account_id, clock.monotonic()) < _MAX_BURST_SECONDS

    def charge(self, account_id: int, seconds: float) -> None:
        """Add the processor time of filling a URL to an account's total, if it is at least `_COSTLY_SECONDS`."""
        if seconds >= _COSTLY_SECONDS:
            now = clock.monotonic()
            self._used[account_id] = (self._get_used(account_id, now) + seconds, now)

    def _get_used(self, account_id: int, now: float) -> float:
        used, at = self._used.get(account_id, (0.0, now))
        return max(0.0, used - (now - at) * _MAX_SHARE)

    def has_failed(self, link: LinkRequest) -> bool:
        """Return whether a link could not be filled in the last `_FAILURE_SECONDS`."""
        return self._failures.get(link, 0.0) > clock.monotonic()

    def add_failure(self, link: LinkRequest) -> None:
        """Store that a link could not be filled, for `_FAILURE_SECONDS`."""
        if len(self._failures) >= _MAX_FAILURES:
            self._failures.clear()
        self._failures[link] = clock.monotonic() + _FAILURE_SECONDS


class LinkResolver:
    """A resolver of tracked links to their messages and targets, with a cache of links.

    `shares` limits the time for filling URLs, for clicks. Only one thread may use a resolver at a time.
    """

    def __init__(self, shares: ClickShares | None = None) -> None:
        self._cache: dict[int | tuple[Any, ...], _SourceLinks] = {}
        self._shares = shares

    def resolve(self, requests: Iterable[LinkRequest]) -> dict[LinkRequest, TrackedMessage]:
        """Return the message and link target of each request.

        Unknown and deleted messages, and messages whose links cannot be resolved, are left out. Raises apsw.Error or
        PeeweeException if the database fails.
        """
        unique_requests = set(requests)
        ids = ",".join(str(item.message_id) for item in unique_requests)
        messages = {row[0]: TrackedMessage(*row) for row in rows(_TRACKED_MESSAGES.format(ids=ids))}
        resolved: dict[LinkRequest, TrackedMessage] = {}
        for request in unique_requests:
            message = messages.get(request.message_id)
            try:
                if message is not None:
                    resolved[request] = self._resolve_one(message, request.number)
            except (apsw.Error, peewee.PeeweeException):
                raise
            except Exception:
                # An error in one message must not affect the other requests.
                log.exception("tracking: resolving a link of message %s failed", request.message_id)
        return resolved

    def _resolve_one(self, message: TrackedMessage, number: int | None) -> TrackedMessage:
        """Return a message with the target of a link; `number` is None for the tracking pixel."""
        source_links = self._get_links(message)
        resolved = message._replace(links=len(source_links.urls))
        url = source_links.urls.get(number) if number is not None else None
        if number is not None and url is not None and "{" in url:
            link = LinkRequest(message.message_id, number)
            if self._shares is None:
                url = _fill_url(url, message, source_links.shared)
            elif self._shares.has_failed(link):
                url = None
            elif not self._shares.has_time(message.account_id):
                return resolved._replace(is_postponed=True)
            else:
                url = _fill_url(url, message, source_links.shared, self._shares)
                if url is None:
                    self._shares.add_failure(link)
        return resolved if url is None else resolved._replace(url=encode_url(url))

    def _get_links(self, message: TrackedMessage) -> _SourceLinks:
        if message.campaign_id is None and message.version is None:
            return _load_single_links(message.message_id)
        source = message.campaign_id or (message.flow_id, message.version, message.step_id)
        source_links = self._cache.get(source)
        if source_links is None:
            if len(self._cache) >= _MAX_CACHED_SOURCES:
                self._cache.clear()
            source_links = self._cache[source] = (
                _load_step_links(source) if isinstance(source, tuple) else _load_campaign_links(source)
            )
        return source_links


def _load_campaign_links(campaign_id: int) -> _SourceLinks:
    numbered = rows("SELECT number, url FROM link WHERE campaign_id = ?", (campaign_id,))
    pinned = fetch_one("SELECT pinned FROM campaign WHERE id = ?", (campaign_id,))
    shared = msgspec.json.decode(pinned[0])["values"] if pinned and pinned[0] else {}
    return _SourceLinks(_keep_absolute(numbered), shared)


def _load_step_links(step: tuple[Any, ...]) -> _SourceLinks:
    pinned = fetch_one("SELECT pinned FROM step WHERE flow_id = ? AND version = ? AND action_id = ?", step)
    snapshot = msgspec.json.decode(pinned[0]) if pinned and pinned[0] else {"links": [], "values": {}}
    return _SourceLinks(_keep_absolute(enumerate((url for url, _ in snapshot["links"]), 1)), snapshot["values"])


def _load_single_links(message_id: int) -> _SourceLinks:
    row = fetch_one("SELECT links, data FROM message_content WHERE message_id = ?", (message_id,))
    if row is None or row[0] is None:
        return _SourceLinks({}, {})
    return _SourceLinks(
        _keep_absolute(enumerate(msgspec.json.decode(row[0]), 1)), {"data": msgspec.json.decode(row[1])}
    )


def _keep_absolute(numbered: Iterable[tuple[int, str]]) -> dict[int, str]:
    # Links were chosen for tracking when the message was rendered. URLs whose host contains a merge tag were not
    # tracked, so no message contains their link numbers.
    return {number: url for number, url in numbered if designs_links.has_literal_host(url)}


def _fill_url(
    url: str, message: TrackedMessage, shared: dict[str, Any], shares: ClickShares | None = None
) -> str | None:
    """Fill the merge tags of a link's URL for one message; return None if that fails.

    With `shares`, filling may take `MAX_LINK_SECONDS`, and its time is counted. Unknown values are left empty, so that
    the reader is still redirected.
    """
    if message.campaign_id is None and message.version is None:
        shared = (
            merge_tags.get_account_values(Account.get_by_id(message.account_id), brands.get(message.account_id))
            | shared
        )
    base_url = message.public_url or config.base_url(config.current())
    values = {**shared, **_get_recipient_values(message), **get_link_values(base_url, message.message_id)}
    if message.version is not None:
        sql = "SELECT r.event_data FROM message m JOIN run r ON r.id = m.run_id WHERE m.id = ?"
        row = fetch_one(sql, (message.message_id,))
        values["event"] = msgspec.json.decode(row[0]) if row and row[0] else {}
    started = time.thread_time()
    try:
        template = merge.compile_template(url, "url")
        return template.render(values, None if shares is None else render_deadline(MAX_LINK_SECONDS))
    except MergeError as error:
        reason = _TOO_SLOW if error.message == TOO_SLOW and shares is not None else str(error)
        log.warning("tracking: filling a link of message %s failed: %s", message.message_id, reason)
        return None
    finally:
        if shares is not None:
            shares.charge(message.account_id, time.thread_time() - started)


def _get_recipient_values(message: TrackedMessage) -> dict[str, Any]:
    sql = (
        "SELECT m.recipient, coalesce(c.shown_as, m.contact_id) FROM message m "
        "LEFT JOIN message_content c ON c.message_id = m.id AND c.shown_as = ? WHERE m.id = ?"
    )
    recipient, contact_id = fetch_one(sql, (NO_CONTACT_ID, message.message_id)) or (None, message.contact_id)
    kind = "phone" if message.channel == "sms" else "email"
    try:
        contact = Contact.get_or_none(Contact.id == contact_id) if contact_id is not None else None
        if contact is not None:
            contacts.load_relations([contact])
        return merge_tags.get_contact_values(contact, recipient, kind)
    except Exception:
        # A click is redirected even if the stored contact cannot be read.
        log.exception("tracking: reading contact %s failed", message.contact_id)
        return merge_tags.get_contact_values(None, recipient, kind)


def encode_url(url: str) -> str | None:
    """Return a URL encoded as browsers do, in printable ASCII for a header, or None if it is not an http(s) URL."""
    try:
        if not (url.isascii() and url.isprintable() and " " not in url):
            url = _percent_encode(url.translate({9: None, 10: None, 13: None}))
        parts = urlsplit(url)
    except ValueError:
        return None
    return url if parts.scheme.lower() in ("http", "https") and parts.hostname else None


def _percent_encode(url: str) -> str:
    """Encode the host of a URL by IDNA, and percent-encode the rest as UTF-8; existing percent signs are kept."""
    scheme, _, rest = url.partition("://")
    host, rest = _split_host(rest)
    if not host.isascii():
        before, at, name = host.rpartition("@")
        name, colon, port = name.partition(":")
        ascii_address = addresses.to_ascii(f"a@{name}")
        encoded = ascii_address.rpartition("@")[2] if ascii_address else quote(name)
        host = f"{quote(before, safe=':%')}{at}{encoded}{colon}{port}"
    return f"{scheme}://{host}{quote(rest, safe=_SAFE_CHARACTERS)}"


# All printable characters except the space.
_SAFE_CHARACTERS = "".join(map(chr, range(0x21, 0x7F)))


def _split_host(rest: str) -> tuple[str, str]:
    end = min((index for index in map(rest.find, "/?#") if index >= 0), default=len(rest))
    return rest[:end], rest[end:]


def build_provider_headers(message_id: int, provider: str) -> tuple[tuple[str, str], ...]:
    """Return headers with a signed message id for the mail services whose webhook is enabled (`email.hooks`).

    The webhooks identify a message by this id, because the services replace its Message-ID; the services remove the
    headers. The result is empty unless the kind of `provider` is `relay` or the service itself. The HTTP APIs of Brevo
    and Mailjet get the id in a field of their own.
    """
    email = config.current().email
    enabled = [header for header in _HOOK_HEADERS if getattr(email.hooks, header[0])]
    if not enabled:
        return ()
    kind = transports.get_kind(provider, email)
    headers = [(name, text) for _, name, text, kinds in enabled if kind in kinds]
    token = crypto.sign_token(MESSAGE_ID, message_id, 8) if headers else ""
    return tuple((name, text.format(token)) for name, text in headers)
