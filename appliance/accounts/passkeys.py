"""Passkeys of users: WebAuthn credentials with which they sign in (docs/decisions.md#36).

This module stores passkeys, builds the options that a browser needs to create or use one, and verifies what the browser
sends back. `passkey_login.py` signs users in with them. Web Authentication Level 3, sections 7.1 and 7.2; the
signatures, the authenticator data and the CBOR are verified by the library `webauthn`.
"""

import base64
import binascii
import hashlib
import ipaddress
import logging
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec

from appliance.accounts import members, passkey_challenges
from appliance.accounts.audit import Actor
from appliance.accounts.passkey_challenges import LIFETIME_MS, Purpose
from appliance.core import clock, crypto
from appliance.core.errors import Invalid, NotFound, Refused
from appliance.core.i18n import gettext
from appliance.core.signals import Signal
from appliance.core.validation import PageQuery
from appliance.settings import config
from appliance.settings.schema import Config
from appliance.storage.database import Page, paginate
from appliance.storage.models import Passkey, User
from appliance.storage.transactions import require_write_transaction

log = logging.getLogger("campanero")
T = TypeVar("T")
MAX_PASSKEYS = 20  # of a user
MAX_NAME_CHARACTERS = 60
# A response has a few hundred bytes; one with an attestation, which is not asked for, a few thousand.
MAX_RESPONSE_CHARACTERS = 16_384
# Web Authentication Level 3, section 4: at most 1,023 bytes.
_MAX_CREDENTIAL_ID_BYTES = 1023
_TRANSPORTS = ("ble", "hybrid", "internal", "nfc", "smart-card", "usb")
# EdDSA, ES256 and RS256 (IANA registry of COSE algorithms), the ones that authenticators have.
_ALGORITHMS = (-8, -7, -257)

# The user, the name of the passkey, and whether it was added (or removed), in the transaction of the change.
passkey_changed: Signal[[User, str, bool]] = Signal()


class PasskeyRefused(Refused):
    """The response of a passkey is not accepted; `reason` says why, for logs and tests, in one or two words."""

    code = "invalid_passkey"

    def __init__(self, reason: str, message: str = "") -> None:
        super().__init__(
            message or gettext("This passkey could not be used. Try again, or sign in with your password.")
        )
        self.reason = reason


class Site(NamedTuple):
    """The relying party that passkeys are bound to: the host name of the installation (`rp.id`), and its origin."""

    host: str
    origin: str


def find_site(settings: Config) -> Site | None:
    """Return the relying party of this installation, or None if it cannot have passkeys.

    Browsers allow them only for a host name, not an IP address, and only over https or on `localhost` (Web
    Authentication Level 3, sections 5.1.3 and 13.4.9). The host name comes from `base_url`, never from a request.
    """
    parts = urlsplit(config.base_url(settings))
    host = (parts.hostname or "").rstrip(".")
    try:
        host = host.encode("idna").decode() if not host.isascii() else host
        port = parts.port
    except (UnicodeError, ValueError):
        return None
    is_local = host == "localhost" or host.endswith(".localhost")
    if not host or _is_ip_address(host) or not (parts.scheme == "https" or is_local):
        return None
    has_port = port is not None and port != {"https": 443, "http": 80}[parts.scheme]
    return Site(host, f"{parts.scheme}://{host}{f':{port}' if has_port else ''}")


def _is_ip_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def require_site(settings: Config) -> Site:
    """Return the relying party of this installation; raises PasskeyRefused if it cannot have passkeys."""
    site = find_site(settings)
    if site is None:
        raise PasskeyRefused("no site", gettext("Passkeys need an https address with a host name."))
    return site


# Options for the browser, as JSON (Web Authentication Level 3, sections 5.1.8 and 5.1.9).


def build_creation_options(user: User, site: Site, known: list[Passkey], session_id: int) -> dict[str, Any]:
    """Return the options with which a browser creates a passkey for a user, in the session with this id.

    The passkey must be discoverable and verify the user, so that it can be used alone. No attestation is asked for:
    it would tell the maker of the device, and no maker is preferred.
    """
    return {
        "rp": {"id": site.host, "name": "Campanero"},
        "user": {"id": _to_text(_user_handle(user.id)), "name": user.email, "displayName": user.name},
        "challenge": passkey_challenges.issue("register", _session_binding(session_id)),
        "pubKeyCredParams": [{"type": "public-key", "alg": number} for number in _ALGORITHMS],
        "timeout": LIFETIME_MS // 2,
        "excludeCredentials": [_describe(passkey) for passkey in known if passkey.host == site.host],
        "authenticatorSelection": {
            "residentKey": "required", "requireResidentKey": True, "userVerification": "required",
        },
        "attestation": "none",
    }  # fmt: skip


def build_request_options(site: Site, purpose: Purpose, browser: str, known: list[Passkey]) -> dict[str, Any]:
    """Return the options with which a browser uses a passkey, for `known` passkeys or, if empty, for any.

    Alone, a passkey must verify the user. After the password it need not, because the password is the other factor.
    """
    return {
        "rpId": site.host,
        "challenge": passkey_challenges.issue(purpose, browser),
        "timeout": LIFETIME_MS // 2,
        "allowCredentials": [_describe(passkey) for passkey in known if passkey.host == site.host],
        "userVerification": "required" if purpose == "sign-in" else "discouraged",
    }


def _describe(passkey: Passkey) -> dict[str, Any]:
    return {"type": "public-key", "id": _to_text(passkey.credential_id), "transports": passkey.transports}


def _user_handle(user_id: int) -> bytes:
    """Return the id of a user for authenticators, which says nothing about the user (section 14.6.1)."""
    key = crypto.derive_key("passkey user handle")
    return hashlib.blake2b(str(user_id).encode(), key=key, digest_size=32).digest()


def _session_binding(session_id: int) -> str:
    return f"session {session_id}"


# What a browser sends back.


class _ResponseJson(msgspec.Struct):
    clientDataJSON: str
    attestationObject: str | None = None
    authenticatorData: str | None = None
    signature: str | None = None
    userHandle: str | None = None
    transports: list[str] | None = None


class _CredentialJson(msgspec.Struct):
    id: str
    rawId: str
    type: str
    response: _ResponseJson


class _ClientData(msgspec.Struct):
    challenge: str
    crossOrigin: bool = False
    topOrigin: str | None = None


class Response(NamedTuple):
    """The parsed response of a browser, of which nothing is verified yet but the challenge (`read_response`)."""

    credential: _CredentialJson
    credential_id: bytes
    challenge: bytes
    user_handle: bytes | None


class NewPasskey(NamedTuple):
    """A verified new passkey, before it is stored."""

    credential_id: bytes
    public_key: bytes
    sign_count: int
    host: str
    transports: list[str]
    is_synced: bool
    is_backed_up: bool


class VerifiedUse(NamedTuple):
    """The verified use of a passkey: its new counter, and whether its provider has copied it."""

    sign_count: int
    is_backed_up: bool


def read_response(text: str, purpose: Purpose, browser: str) -> Response:
    """Parse the JSON of a response and use up its challenge, which must be of this purpose and browser.

    Raises PasskeyRefused.
    """
    if len(text) > MAX_RESPONSE_CHARACTERS:
        raise PasskeyRefused("too large")
    try:
        credential = msgspec.json.decode(text, type=_CredentialJson)
        client_data = msgspec.json.decode(_to_bytes(credential.response.clientDataJSON), type=_ClientData)
        handle = credential.response.userHandle
        response = Response(
            credential, _to_bytes(credential.rawId), _to_bytes(client_data.challenge),
            _to_bytes(handle) if handle else None,
        )  # fmt: skip
    except (msgspec.DecodeError, binascii.Error, UnicodeError, ValueError) as error:
        raise PasskeyRefused("malformed") from error
    # No other site may show the sign-in in a frame (section 13.4.2).
    if client_data.crossOrigin or client_data.topOrigin is not None:
        raise PasskeyRefused("framed")
    if not 0 < len(response.credential_id) <= _MAX_CREDENTIAL_ID_BYTES:
        raise PasskeyRefused("malformed")
    if not passkey_challenges.use(client_data.challenge, purpose, browser):
        raise PasskeyRefused("challenge", gettext("That took too long. Try again."))
    return response


def verify_registration(text: str, site: Site, session_id: int) -> NewPasskey:
    """Verify the response of a browser that created a passkey in a session; raises PasskeyRefused."""
    response = read_response(text, "register", _session_binding(session_id))

    def verify() -> Any:
        import webauthn  # late: with its certificate libraries it takes a tenth of a second, and few use it
        from webauthn.helpers.cose import COSEAlgorithmIdentifier

        return webauthn.verify_registration_response(
            credential=msgspec.to_builtins(response.credential), expected_challenge=response.challenge,
            expected_rp_id=site.host, expected_origin=site.origin, require_user_verification=True,
            supported_pub_key_algs=[COSEAlgorithmIdentifier(number) for number in _ALGORITHMS],
        )  # fmt: skip

    result = _verify(verify)
    if result.credential_id != response.credential_id:
        raise PasskeyRefused("credential id")
    names = set(response.credential.response.transports or ())
    return NewPasskey(
        result.credential_id, result.credential_public_key, result.sign_count, site.host,
        [name for name in _TRANSPORTS if name in names],
        result.credential_device_type == "multi_device", result.credential_backed_up,
    )  # fmt: skip


def verify_use(response: Response, site: Site, passkey: Passkey, must_verify_user: bool) -> VerifiedUse:
    """Verify the signature of a passkey; raises PasskeyRefused. The counter is compared by `record_use`."""
    if passkey.host != site.host or passkey.credential_id != response.credential_id:
        raise PasskeyRefused("another host")
    # A discoverable passkey names its user; the name must be that of the passkey's row (section 7.2, step 6).
    if response.user_handle is None:
        if must_verify_user:
            raise PasskeyRefused("no user handle")
    elif response.user_handle != _user_handle(passkey.user_id):
        raise PasskeyRefused("user handle")

    def verify() -> Any:
        import webauthn  # late: with its certificate libraries it takes a tenth of a second, and few use it

        return webauthn.verify_authentication_response(
            credential=msgspec.to_builtins(response.credential), expected_challenge=response.challenge,
            expected_rp_id=site.host, expected_origin=site.origin, credential_public_key=bytes(passkey.public_key),
            # The library compares the counter before it has verified the signature, so it is compared later.
            credential_current_sign_count=0, require_user_verification=must_verify_user,
        )  # fmt: skip

    result = _verify(verify)
    if (result.credential_device_type == "multi_device") != passkey.is_synced:
        raise PasskeyRefused("backup flags")  # section 7.2: the flag BE never changes
    return VerifiedUse(result.new_sign_count, result.credential_backed_up)


def _verify(verify: Callable[[], T]) -> T:
    try:
        return verify()
    except Exception as error:
        # The library parses bytes of a stranger, and its decoders raise errors of many kinds for malformed ones.
        log.info("passkeys: response refused: %s", error)
        raise PasskeyRefused("not verified") from error


def _to_text(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def _to_bytes(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


# The stored passkeys.


def list_by_user(user_id: int) -> list[Passkey]:
    """Return the passkeys of a user, the oldest first."""
    return list(Passkey.select().where(Passkey.user == user_id).order_by(Passkey.id))


def fetch_page(user_id: int, query: PageQuery) -> Page:
    """Return a page of the passkeys of a user, newest first."""
    passkeys = Passkey.select().where(Passkey.user == user_id)
    return paginate(passkeys.order_by(Passkey.created_at.desc(), Passkey.id.desc()), query.page, query.size())


def get(user_id: int, passkey_id: int) -> Passkey:
    """Return a passkey of a user; raises NotFound."""
    passkey: Passkey | None = Passkey.get_or_none(Passkey.user == user_id, Passkey.id == passkey_id)
    if passkey is None:
        raise NotFound
    return passkey


def find_by_credential(credential_id: bytes) -> Passkey | None:
    """Return the passkey with this credential id, with its user, unless the user may enter no account; else None."""
    passkey: Passkey | None = (
        Passkey.select(Passkey, User).join(User).where(Passkey.credential_id == credential_id).first()
    )
    return passkey if passkey is not None and members.bind_entry(passkey.user).member is not None else None


def insert(user: User, new: NewPasskey, name: str, by: Actor) -> Passkey:
    """Store a verified passkey of a user.

    Raises Invalid for a name that is blank or too long, for too many passkeys, and if the credential is known already,
    for this user or another one (section 7.1, step 26).
    """
    require_write_transaction()
    name = _validate_name(name)
    if user.passkey_count >= MAX_PASSKEYS:
        raise Invalid({"base": [gettext("You have %(limit)s passkeys already. Remove one first.", limit=MAX_PASSKEYS)]})
    if Passkey.get_or_none(Passkey.credential_id == new.credential_id) is not None:
        raise Invalid({"base": [gettext("This passkey is stored already.")]})
    passkey = Passkey.create(
        user=user, credential_id=new.credential_id, public_key=new.public_key, sign_count=new.sign_count,
        host=new.host, name=name, transports=new.transports, is_synced=new.is_synced, is_backed_up=new.is_backed_up,
        created_at=clock.now_ms(),
    )  # fmt: skip
    _count(user)
    members.record_for_person(by, user.id, "passkey_add", {"passkey_id": passkey.id})
    passkey_changed.send(user, name, True)
    return passkey


def rename(user_id: int, passkey_id: int, name: str, by: Actor) -> Passkey:
    """Rename a passkey of a user; raises NotFound, or Invalid for a name that is blank or too long."""
    require_write_transaction()
    passkey, name = get(user_id, passkey_id), _validate_name(name)
    if name != passkey.name:
        passkey.name = name
        passkey.save(only=["name"])
        members.record_for_person(by, user_id, "passkey_name", {"passkey_id": passkey.id})
    return passkey


def delete(user: User, passkey: Passkey, by: Actor) -> None:
    """Delete a passkey of a user."""
    require_write_transaction()
    passkey.delete_instance()
    _count(user)
    members.record_for_person(by, user.id, "passkey_remove", {"passkey_id": passkey.id})
    passkey_changed.send(user, passkey.name, False)


def delete_all(user: User, by: Actor) -> None:
    """Delete all passkeys of a user."""
    for passkey in list_by_user(user.id):
        delete(user, passkey, by)


def record_use(passkey_id: int, use: VerifiedUse, ip: str | None) -> bool:
    """Store the new counter and the time of a verified use; return False if the counter did not grow.

    A counter that did not grow means that the passkey may have been copied (section 6.1.1): only an audit entry is
    written. Passkeys that providers copy do not count and always send 0. Returns False also if the passkey was removed
    meanwhile.
    """
    require_write_transaction()
    passkey = Passkey.get_or_none(Passkey.id == passkey_id)
    if passkey is None:
        return False
    if (use.sign_count or passkey.sign_count) and use.sign_count <= passkey.sign_count:
        data = {"passkey_id": passkey.id, "counter": use.sign_count, "before": passkey.sign_count}
        members.record_for_person(Actor(ip=ip), passkey.user_id, "passkey_counter", data)
        return False
    passkey.sign_count, passkey.is_backed_up, passkey.last_used_at = use.sign_count, use.is_backed_up, clock.now_ms()
    passkey.save(only=["sign_count", "is_backed_up", "last_used_at"])
    return True


def _count(user: User) -> None:
    user.passkey_count = Passkey.select().where(Passkey.user == user.id).count()
    user.save(only=["passkey_count"])


def _validate_name(name: str) -> str:
    name = " ".join(name.split())
    if not name:
        raise Invalid({"name": [gettext("can't be blank")]})
    if len(name) > MAX_NAME_CHARACTERS:
        raise Invalid({"name": [gettext("is too long (maximum is %(limit)s characters)", limit=MAX_NAME_CHARACTERS)]})
    return name
