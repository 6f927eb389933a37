"""Devices: the browsers and programs from which a user has signed in, with the names that the user gave them.

A browser is recognized by a cookie, which it keeps for a year, and a program by its User-Agent header and its network.
A sign-in from a device that is not known yet sends `signed_in_on_new_device`.
"""

import hashlib
import re
import secrets
from typing import NamedTuple

from appliance.accounts import audit
from appliance.accounts.audit import Actor
from appliance.core import addresses, clock, crypto
from appliance.core.errors import Invalid
from appliance.core.i18n import gettext
from appliance.core.signals import Signal
from appliance.events import user_agents
from appliance.storage.models import Device, Session, User
from appliance.storage.transactions import require_write_transaction

COOKIE_SECONDS = 365 * 86_400
MAX_NAME_CHARACTERS = 60
# A browser that was not used for longer has lost its cookie, so its device is deleted.
_RETENTION_MS = COOKIE_SECONDS * 1000
# The limit for one user; the device that was not used for the longest time is forgotten first.
_MAX_DEVICES = 100
_TOKEN_BYTES = 32
_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")
# The name of a program in a User-Agent header: its first product (RFC 9110, section 10.1.5).
_PRODUCT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")

# The user and the session; sent in the transaction of the sign-in. The first device of a user is not reported.
signed_in_on_new_device: Signal[[User, Session]] = Signal()


class Recognition(NamedTuple):
    """The device of a sign-in, whether it was unknown, and whether the user has other devices."""

    device: Device
    is_new: bool
    has_others: bool


def read_or_create_token(cookie: str | None) -> str:
    """Return the value of a device cookie if it is well-formed, else a new random one."""
    return cookie if cookie is not None and _TOKEN.fullmatch(cookie) else secrets.token_urlsafe(_TOKEN_BYTES)


def recognize(user_id: int, token: str | None, user_agent: str | None, ip: str | None) -> Recognition:
    """Find or create the device of a sign-in; `token` is the cookie of a browser, None for a program."""
    require_write_transaction()
    now, token_hash = clock.now_ms(), _hash(token, user_agent, ip)
    device = Device.get_or_none(Device.user == user_id, Device.token_hash == token_hash)
    others = Device.select(Device.id).where(Device.user == user_id, Device.token_hash != token_hash)
    others = others.order_by(Device.last_seen_at.desc(), Device.id.desc())
    if device is not None:
        Device.update(last_seen_at=now).where(Device.id == device.id).execute()
        return Recognition(device, False, others.exists())
    has_others = others.exists()
    forgotten = [row.id for row in others.offset(_MAX_DEVICES - 1).limit(_MAX_DEVICES)]
    Device.delete().where(Device.id.in_(forgotten)).execute()
    device = Device.create(user=user_id, token_hash=token_hash, created_at=now, last_seen_at=now)
    return Recognition(device, True, has_others)


def _hash(token: str | None, user_agent: str | None, ip: str | None) -> str:
    if token is not None:
        return crypto.hash_secret(token)
    program = f"program\n{addresses.client_network(ip or '')}\n{user_agent or ''}"
    return hashlib.sha256(program.encode("utf-8", "replace")).hexdigest()


def describe_program(user_agent: str | None) -> str:
    """Return the browser and the operating system of a User-Agent header as text, in the current language."""
    device = user_agents.parse_device(user_agent)
    browser = device.browser or gettext("Unknown browser")
    return gettext("%(browser)s on %(system)s", browser=browser, system=device.os) if device.os else browser


def describe(session: Session) -> str:
    """Return the name of a session's device: as the user named it, else as its User-Agent header says."""
    if session.device is not None and session.device.name:
        return str(session.device.name)
    return describe_unnamed(session)


def describe_unnamed(session: Session) -> str:
    """Return the name of a session's device as its User-Agent header says, whatever the user named it."""
    if session.kind == "browser":
        return describe_program(session.user_agent)
    product = _PRODUCT.match(session.user_agent or "")
    return gettext("%(name)s (API token)", name=product[0]) if product else gettext("App (API token)")


def rename(session: Session, name: str, by: Actor) -> None:
    """Name the device of a session; an empty name lets the User-Agent header name it again.

    Raises Invalid for a long name.
    """
    require_write_transaction()
    name = " ".join(name.split())
    if len(name) > MAX_NAME_CHARACTERS:
        raise Invalid({"name": [gettext("is too long (maximum is %(limit)s characters)", limit=MAX_NAME_CHARACTERS)]})
    if session.device is None:
        # The session began before devices were known: it gets a device of its own, which no cookie belongs to.
        now = clock.now_ms()
        session.device = Device.create(
            user=session.user_id, token_hash=crypto.hash_secret(secrets.token_urlsafe(_TOKEN_BYTES)),
            created_at=session.created_at, last_seen_at=now,
        )  # fmt: skip
        session.save(only=["device"])
    Device.update(name=name or None).where(Device.id == session.device_id).execute()
    session.device.name = name or None
    audit.record(by, session.account_id, "session_name", f"user:{session.user_id}", {"session_id": session.id})


def forget(user_id: int, kept_id: int | None = None) -> None:
    """Forget the devices of a user except `kept_id`, so that the next sign-in from them counts as new."""
    require_write_transaction()
    Device.delete().where(Device.user == user_id, Device.id != (kept_id or 0)).execute()


def find_expired(limit: int) -> list[int]:
    """Return the ids of up to `limit` devices that were not used for a year."""
    expired = Device.select(Device.id).where(Device.last_seen_at < clock.now_ms() - _RETENTION_MS)
    return [row.id for row in expired.limit(limit)]


def delete_expired(ids: list[int]) -> int:
    """Delete the given devices if they have expired, and return their number."""
    require_write_transaction()
    is_expired = Device.last_seen_at < clock.now_ms() - _RETENTION_MS
    return int(Device.delete().where(Device.id.in_(ids), is_expired).execute())
