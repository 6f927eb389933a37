"""Programs that ask to be connected by OAuth 2.1: their names and redirect URIs, as they state them themselves.

A program is known by the URL of its metadata document (draft-ietf-oauth-client-id-metadata-document), or it registers
itself (RFC 7591). All of them are public clients: any program can register, so a secret would prove nothing, and
PKCE protects the code (docs/decisions.md#28-connected-apps). Only the host of a document's URL is verified.
"""

import re
import unicodedata
from typing import Annotated, Any, NamedTuple
from urllib.parse import urlsplit

import msgspec
from cachetools import TTLCache
from msgspec import Meta, Struct

from appliance.core import clock, crypto
from appliance.core.hidden_characters import clean_text
from appliance.sending.delivery import safe_http
from appliance.storage.database import rows
from appliance.storage.models import AppClient
from appliance.storage.transactions import fetch, require_write_transaction

CLIENT_PREFIX = "camp_client_"
MAX_DOCUMENT_BYTES = 10_240
MAX_REGISTRATION_BYTES = 10_240
MAX_REDIRECT_URIS = 10
MAX_URL_CHARACTERS = 2_000
MAX_NAME_CHARACTERS = 80
# Registered programs that are not connected yet; at the limit, the oldest of them is deleted.
MAX_UNUSED_CLIENTS = 500
UNUSED_CLIENT_MS = clock.DAY_MS
# A program that was connected once is forgotten when it has had no grant for this time.
IDLE_CLIENT_MS = 180 * clock.DAY_MS
_DOCUMENT_SECONDS, _MAX_DOCUMENTS = 300, 200
_LOOPBACK_HOSTS = ("127.0.0.1", "[::1]", "localhost")
_AUTH_METHODS = (None, "none")
_documents: "TTLCache[str, Client]" = TTLCache(_MAX_DOCUMENTS, _DOCUMENT_SECONDS)


class ClientRefused(Exception):
    """The program, or its metadata, cannot be accepted; `error` is a code of RFC 6749 or RFC 7591."""

    def __init__(self, error: str, description: str) -> None:
        super().__init__(description)
        self.error, self.description = error, description


class Client(NamedTuple):
    """A program that asks to be connected."""

    client_id: str
    name: str  # as it calls itself
    redirect_uris: tuple[str, ...]
    host: str  # the host of its metadata document, which is verified; "" if it registered itself


Url = Annotated[str, Meta(max_length=MAX_URL_CHARACTERS)]


class ClientMetadata(Struct):
    """The metadata that matter here (RFC 7591, section 2); all others are ignored."""

    redirect_uris: Annotated[list[Url], Meta(min_length=1, max_length=MAX_REDIRECT_URIS)]
    client_name: Annotated[str, Meta(max_length=1_000)] | None = None
    client_id: Url | None = None
    client_secret: Any = None
    token_endpoint_auth_method: str | None = None
    grant_types: list[str] | None = None
    response_types: list[str] | None = None


# Letters, digits, dots and hyphens, or an IPv6 address, with a port; `@` has an error of its own.
_HOST = re.compile(r"(?:[A-Za-z0-9.@_-]*|\[[0-9A-Fa-f:.]+\])(?::\d*)?")


def clean_name(name: str | None, fallback: str) -> str:
    """Return the name of a program on one line, cut to `MAX_NAME_CHARACTERS`.

    Invisible characters and changes of text direction are removed. A name without a visible character becomes
    `fallback`.
    """
    visible = "".join(
        " " if character.isspace() else character
        for character in clean_text(unicodedata.normalize("NFC", name or ""))
        if character.isspace() or unicodedata.category(character)[0] != "C"
    )
    has_shape = any(unicodedata.category(character)[0] in "LNPS" for character in visible)
    return " ".join(visible.split())[:MAX_NAME_CHARACTERS].strip() if has_shape else fallback


def find_redirect_fault(uri: str) -> str | None:
    """Return why a redirect URI cannot be registered, or None: it is https, or http to this computer itself.

    RFC 8252, section 7.3; "Communication Security" of the Model Context Protocol allows no other schemes.
    """
    if not uri.isascii() or not uri.isprintable() or any(character in " \"'<>\\^`{|}" for character in uri):
        return "has a character that is not allowed"
    try:
        parts = urlsplit(uri)
        _ = parts.port
    except ValueError:
        return "cannot be parsed"
    if not _HOST.fullmatch(parts.netloc):
        # The host appears in the header that says where the consent page may lead (`form-action`).
        return "has a character that is not allowed in its host"
    if "#" in uri or "@" in parts.netloc:
        return "must have no fragment and no user name"
    if parts.scheme == "https" and parts.hostname:
        return None
    if parts.scheme == "http" and _is_loopback(uri):
        return None
    return "must be https, or http to localhost, 127.0.0.1 or [::1]"


def _is_loopback(uri: str) -> bool:
    return _split_port(uri)[0] in tuple(f"http://{host}" for host in _LOOPBACK_HOSTS)


def _split_port(uri: str) -> tuple[str, str]:
    """Return (scheme and host without the port, path and query) of a URI, both as they are written."""
    scheme, _, rest = uri.partition("://")
    end = min((position for mark in "/?" if (position := rest.find(mark)) >= 0), default=len(rest))
    authority, path = rest[:end], rest[end:]
    host, colon, port = authority.rpartition(":")
    return f"{scheme}://{host if colon and port.isdecimal() else authority}", path


def allows_redirect(client: Client, uri: str) -> bool:
    """Return whether a program may be redirected to: it has stated exactly this URI.

    Only the port of a loopback URI may differ, which a native program chooses when it starts (RFC 8252, section 7.3).
    """
    if find_redirect_fault(uri) is not None:
        return False
    if uri in client.redirect_uris:
        return True
    return _is_loopback(uri) and any(
        _is_loopback(stated) and _split_port(stated) == _split_port(uri) for stated in client.redirect_uris
    )


def describe_redirect(uri: str) -> str:
    """Return the host of a redirect URI, with its port if it has one; "" for this computer itself."""
    return "" if _is_loopback(uri) else urlsplit(uri).netloc


def _check(metadata: ClientMetadata) -> None:
    """Raise ClientRefused for metadata of a program that could not be connected."""
    for uri in metadata.redirect_uris:
        if fault := find_redirect_fault(uri):
            raise ClientRefused("invalid_redirect_uri", f"redirect_uris: {uri[:200]!a} {fault}")
    if metadata.grant_types is not None and "authorization_code" not in metadata.grant_types:
        raise ClientRefused("invalid_client_metadata", "grant_types must include authorization_code")
    if metadata.response_types is not None and "code" not in metadata.response_types:
        raise ClientRefused("invalid_client_metadata", "response_types must include code")


def _decode(content: bytes, error: str) -> ClientMetadata:
    try:
        metadata = msgspec.json.decode(content, type=ClientMetadata)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        raise ClientRefused(error, f"The metadata are not valid: {str(fault)[:200]}") from None
    _check(metadata)
    return metadata


def parse_registration(content: bytes) -> ClientMetadata:
    """Return the metadata of a registration request; raises ClientRefused (RFC 7591, section 3.2.2).

    A requested method of authentication is not an error: the response says `none` (RFC 7591, section 3.2.1).
    """
    if len(content) > MAX_REGISTRATION_BYTES:
        raise ClientRefused("invalid_client_metadata", f"The metadata have more than {MAX_REGISTRATION_BYTES} bytes.")
    return _decode(content, "invalid_client_metadata")


def register(metadata: ClientMetadata) -> Client:
    """Store a program that registered itself, and delete the oldest unconnected ones beyond the limit."""
    require_write_transaction()
    unused = AppClient.select(AppClient.id).where(AppClient.authorized_at.is_null())
    excess = unused.count() + 1 - MAX_UNUSED_CLIENTS
    if excess > 0:
        oldest = [row.id for row in unused.order_by(AppClient.created_at, AppClient.id).limit(excess)]
        AppClient.delete().where(AppClient.id.in_(oldest)).execute()
    uris = tuple(dict.fromkeys(metadata.redirect_uris))
    client_id = CLIENT_PREFIX + crypto.random_base62(24)
    name = clean_name(metadata.client_name, describe_redirect(uris[0]) or "localhost")
    AppClient.create(client_id=client_id, name=name, redirect_uris=list(uris), created_at=clock.now_ms())
    return Client(client_id, name, uris, "")


def is_document_url(client_id: str) -> bool:
    """Return whether the id of a client is the URL of a metadata document: https, with a path."""
    if not client_id.startswith("https://") or len(client_id) > MAX_URL_CHARACTERS:
        return False
    if find_redirect_fault(client_id) is not None:
        return False
    path = urlsplit(client_id).path
    return path not in ("", "/") and not {".", ".."} & set(path.split("/"))


async def find(client_id: str) -> Client:
    """Return the program with this id, whose metadata document is fetched if the id is a URL.

    The host of the URL must be public, redirects are not followed, and a document is kept for `_DOCUMENT_SECONDS`.
    Raises ClientRefused. Call it for signed-in users only, because it requests a URL that anyone can choose.
    """
    if not client_id.startswith("https://"):
        client = await fetch(_find_registered, client_id)
        if client is None:
            raise ClientRefused("invalid_client", "This app is not registered, or its registration has expired.")
        return client
    if not is_document_url(client_id):
        raise ClientRefused("invalid_client", "The URL of the app is not valid.")
    if (cached := _documents.get(client_id)) is not None:
        return cached
    try:
        response = await safe_http.get(client_id, max_bytes=MAX_DOCUMENT_BYTES)
    except safe_http.RequestFailed:
        raise ClientRefused("invalid_client", "The description of the app cannot be read.") from None
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if response.status != 200 or not (kind == "application/json" or kind.endswith("+json")):
        raise ClientRefused("invalid_client", "The description of the app cannot be read.")
    _documents[client_id] = client = parse_document(client_id, response.body)
    return client


def parse_document(client_id: str, content: bytes) -> Client:
    """Return the program that a metadata document describes; raises ClientRefused.

    The document must name its own URL exactly, and must not rely on a secret
    (draft-ietf-oauth-client-id-metadata-document-02, section 4).
    """
    metadata = _decode(content, "invalid_client")
    if metadata.client_id != client_id:
        raise ClientRefused("invalid_client", "The description of the app is for another URL.")
    if metadata.client_secret is not None or metadata.token_endpoint_auth_method not in _AUTH_METHODS:
        raise ClientRefused("invalid_client", "The app must be a public client (token_endpoint_auth_method: none).")
    host = urlsplit(client_id).netloc
    return Client(client_id, clean_name(metadata.client_name, host), tuple(metadata.redirect_uris), host)


def _find_registered(client_id: str) -> Client | None:
    row = AppClient.get_or_none(AppClient.client_id == client_id)
    return None if row is None else Client(row.client_id, row.name, tuple(row.redirect_uris), "")


def mark_authorized(client_id: str) -> None:
    """Store that a user has connected a program that registered itself, so that it is kept."""
    require_write_transaction()
    AppClient.update(authorized_at=clock.now_ms()).where(AppClient.client_id == client_id).execute()


def find_expired(limit: int) -> list[int]:
    """Return the ids of up to `limit` registered programs that were never connected, or are no longer."""
    now = clock.now_ms()
    statement = (
        "SELECT id FROM app_client WHERE (authorized_at IS NULL AND created_at < :unused) OR (authorized_at < :idle "
        "AND NOT EXISTS (SELECT 1 FROM app_grant WHERE app_grant.client_id = app_client.client_id)) LIMIT :limit"
    )
    values = {"unused": now - UNUSED_CLIENT_MS, "idle": now - IDLE_CLIENT_MS, "limit": limit}
    return [row[0] for row in rows(statement, values)]


def delete_expired(ids: list[int]) -> int:
    """Delete the registered programs with these ids, and return their number."""
    require_write_transaction()
    return int(AppClient.delete().where(AppClient.id.in_(ids)).execute())
