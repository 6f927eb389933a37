"""The consents of mailboxes (OAuth 2.0): store them, keep them alive, and tell the owners before one ends.

The refresh token of a consent is a setting; the row `MailboxGrant` says what is known about it.
`sending/delivery/oauth/tokens.py` requests access tokens, and its signals lead to `record_refresh` and
`record_rejection`.
"""

import asyncio
import hashlib
import logging
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from appliance.accounts import audit, members, settings, users
from appliance.accounts.audit import Actor
from appliance.core import addresses, clock
from appliance.core.errors import DeliveryError, Unavailable
from appliance.core.i18n import get_language_tag, gettext, ngettext, translate_stored, use_language
from appliance.sending.delivery import http_client
from appliance.sending.delivery.oauth import PROVIDERS, tokens
from appliance.sending.delivery.oauth.providers import Use, find_use
from appliance.sending.delivery.oauth.tokens import TokenResponse
from appliance.sending.messages import system_emails
from appliance.sending.messages.system_emails import SystemEmail
from appliance.settings import config
from appliance.settings.config import LoadedConfig
from appliance.storage import transactions
from appliance.storage.models import MailboxGrant
from appliance.storage.transactions import require_write_transaction

log = logging.getLogger("campanero.sender")

# The transports belong to the installation, which its first account manages.
_FIRST_ACCOUNT = 1
# A consent that is not used for this long is refreshed, so that it is not lost by disuse (Microsoft: 90 days, Google:
# six months), and that its end is known before something has to be sent.
_REFRESH_MS = 6 * 3600 * 1000
# The owners are told this long before a consent ends.
WARN_MS = 3 * clock.DAY_MS
# A provider may return a new refresh token each time; the earlier one stays valid, so it is replaced once a day.
_ROTATE_MS = clock.DAY_MS


class GrantStatus(NamedTuple):
    """The state of the consent of a provider, and its mailbox ("" if unknown).

    `failure` says in the provider's words why it is rejected, and `days_left` in how many whole days it ends, if known.
    """

    state: Literal["missing", "connected", "expiring", "rejected"]
    email: str = ""
    failure: str = ""
    days_left: int | None = None


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _setting_of(name: str) -> str:
    return f"email.{name}.refresh_token"


def _find_row(name: str, token: str) -> MailboxGrant | None:
    return MailboxGrant.get_or_none(MailboxGrant.provider == name, MailboxGrant.token_hash == _hash(token))


def _find_or_build_row(name: str, token: str) -> MailboxGrant:
    """Return the row of a refresh token, or a new one that is not saved yet, and delete that of an earlier token."""
    row = _find_row(name, token)
    if row is None:
        MailboxGrant.delete().where(MailboxGrant.provider == name).execute()
        now = clock.now_ms()
        row = MailboxGrant(provider=name, token_hash=_hash(token), granted_at=now, refreshed_at=now)
    return row


def find_status(name: str) -> GrantStatus:
    """Return the state of the consent of a provider whose refresh token is in the settings."""
    token = PROVIDERS[name].section(config.current().email).refresh_token
    if not token:
        return GrantStatus("missing")
    row = _find_row(name, token)
    if row is None:
        return GrantStatus("connected")  # It was set in the environment or the file, and not used yet.
    if row.failed_at is not None:
        return GrantStatus("rejected", row.email, translate_stored(row.failure or ""))
    if row.expires_at is None:
        return GrantStatus("connected", row.email)
    left = row.expires_at - clock.now_ms()
    return GrantStatus("expiring" if left < WARN_MS else "connected", row.email, days_left=max(left // clock.DAY_MS, 0))


def find_needed_status() -> tuple[str, GrantStatus] | None:
    """Return (name of the provider, state) of the consent that the active transport needs, or None if it needs none."""
    use = find_use(config.current().email)
    return (use[0], find_status(use[0])) if use is not None else None


def save(name: str, use: Use, response: TokenResponse, actor: Actor) -> LoadedConfig:
    """Store a new consent, and return the new configuration, which the caller applies after the commit.

    For SMTP, the mailbox becomes the user name of the relay, unless one is set. Raises Invalid if the refresh token is
    fixed by the environment or the file.
    """
    require_write_transaction()
    values: dict[str, Any] = {_setting_of(name): response.refresh_token}
    relay = config.current().email.relay
    if use == "smtp" and not relay.username and response.email and settings.can_set("email.relay.username"):
        values["email.relay.username"] = response.email
    loaded = settings.save(values)
    now = clock.now_ms()
    MailboxGrant.insert(
        provider=name, token_hash=_hash(response.refresh_token), email=response.email, granted_at=now,
        refreshed_at=now, expires_at=_to_ms(response.refresh_expires_at), failed_at=None, failure=None, warned_at=None,
    ).on_conflict_replace().execute()  # fmt: skip
    audit.record(actor, _FIRST_ACCOUNT, "settings_update", None, {"changed": sorted(values)})
    return loaded


def remove(name: str, actor: Actor) -> LoadedConfig:
    """Delete the consent of a provider, and return the new configuration, which the caller applies after the commit."""
    require_write_transaction()
    loaded = settings.save({_setting_of(name): None})
    MailboxGrant.delete().where(MailboxGrant.provider == name).execute()
    audit.record(actor, _FIRST_ACCOUNT, "settings_update", None, {"changed": [_setting_of(name)]})
    return loaded


def _to_ms(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1000)


# What the provider answers to a refresh token is written by the writer, because senders must not wait for it.


def record_refresh(name: str, token: str, response: TokenResponse) -> None:
    """Queue the write of `write_refresh`; the receiver of `tokens.grant_refreshed`."""
    _submit(write_refresh, name, token, response)


def record_rejection(name: str, token: str, words: str) -> None:
    """Queue the write of `write_rejection`; the receiver of `tokens.grant_rejected`."""
    _submit(write_rejection, name, token, words)


def _submit(function: Any, *arguments: Any) -> None:
    try:
        transactions.submit(function, *arguments)
    except (Unavailable, RuntimeError):
        # A command such as `doctor` has no writer, and records nothing.
        log.debug("oauth: answer of provider=%s is not recorded", arguments[0])


def write_refresh(name: str, token: str, response: TokenResponse) -> None:
    """Record that a refresh token was accepted, and store the one that replaces it, if there is one, once a day."""
    require_write_transaction()
    now, row = clock.now_ms(), _find_or_build_row(name, token)
    is_rotation_due = now - row.granted_at >= _ROTATE_MS
    row.refreshed_at, row.failed_at, row.failure = now, None, None
    row.email = response.email or row.email
    if response.refresh_expires_at is not None:
        row.expires_at = _to_ms(response.refresh_expires_at)
    if response.refresh_token and is_rotation_due and settings.can_set(_setting_of(name)):
        loaded = settings.save({_setting_of(name): response.refresh_token})
        row.token_hash, row.granted_at = _hash(response.refresh_token), now
        transactions.after_commit(lambda: config.set_current(loaded.config, loaded))
    if row.expires_at is None or row.expires_at - now >= WARN_MS:
        row.warned_at = None
    row.save(force_insert=row.id is None)
    _warn_if_expiring(row)


def write_rejection(name: str, token: str, words: str) -> None:
    """Record that a refresh token was rejected for good, and tell the owners once."""
    require_write_transaction()
    now, row = clock.now_ms(), _find_or_build_row(name, token)
    is_known = row.failed_at is not None
    row.failed_at, row.failure = row.failed_at or now, words
    if not is_known:
        log.error("oauth: consent rejected provider=%s: %s", name, words)
        row.warned_at = now
        _email_owners(name, None)
    row.save(force_insert=row.id is None)


def _warn_if_expiring(row: MailboxGrant) -> None:
    """Email the owners that a consent ends soon, unless they have had this email."""
    now = clock.now_ms()
    if row.expires_at is None or row.expires_at - now >= WARN_MS or row.warned_at is not None:
        return
    row.warned_at = now
    row.save()
    _email_owners(row.provider, max((row.expires_at - now) // clock.DAY_MS, 0))


def _email_owners(name: str, days_left: int | None) -> None:
    """Queue an email to each owner of the first account; it is sent once something can be sent."""
    label = PROVIDERS[name].label
    owners = members.list_active(_FIRST_ACCOUNT, ("owner",))
    for owner in owners:
        with use_language(users.choose_language(owner, owner.account)):
            content = _build_notice(label, days_left)
        data = {"link": f"{config.base_url(config.current())}/settings/sending/connect/{name}"}
        system_emails.queue_system_email(owner.account, addresses.parse_email(owner.email), None, content, data)


def _build_notice(label: str, days_left: int | None) -> SystemEmail:
    if days_left is None:
        subject = gettext("%(provider)s has ended the access of Campanero", provider=label)
        text = gettext(
            "%(provider)s no longer accepts the consent to send email. Emails wait and are sent once you "
            "connect the mailbox again.",
            provider=label,
        )
    else:
        subject = gettext("The access of Campanero to %(provider)s ends soon", provider=label)
        text = ngettext(
            "The consent to send email through %(provider)s ends in %(num)s day. Connect the mailbox again before "
            "that, so that no email has to wait.",
            "The consent to send email through %(provider)s ends in %(num)s days. Connect the mailbox again before "
            "that, so that no email has to wait.",
            days_left,
            provider=label,
        )
    return SystemEmail(
        subject, subject, text, gettext("Connect the mailbox"), "{{ data.link }}",
        gettext("You get this email because you are an owner of this installation."), get_language_tag(),
    )  # fmt: skip


# The hourly check.


def _list_due() -> Iterator[tuple[str, Use]]:
    """Yield (name of the provider, use) of the consent that the active transport needs, if it is due for a refresh.

    It is due `_REFRESH_MS` after the last refresh, unless it failed.
    """
    needed = find_use(config.current().email)
    if needed is None:
        return
    name, use = needed
    token = PROVIDERS[name].section(config.current().email).refresh_token
    row = _find_row(name, token) if token else None
    if token and (row is None or row.failed_at is None) and (
        row is None or clock.now_ms() - row.refreshed_at >= _REFRESH_MS
    ):  # fmt: skip
        yield name, use


def keep_alive() -> None:
    """Refresh the consent that the active transport needs if that is due, and warn if it ends soon.

    Waits for the provider. A provider that cannot be reached is tried again in the next hour.
    """
    for name, use in list(_list_due()):
        try:
            asyncio.run(_refresh(name, use))
        except DeliveryError as error:
            log.warning("oauth: consent not refreshed provider=%s: %s", name, error.text)
    transactions.write(_warn_of_needed)


async def _refresh(name: str, use: Use) -> None:
    try:
        await tokens.refresh(name, use, config.current().email)
    finally:
        await http_client.close_connections()


def _warn_of_needed() -> None:
    needed = find_use(config.current().email)
    token = PROVIDERS[needed[0]].section(config.current().email).refresh_token if needed is not None else ""
    row = _find_row(needed[0], token) if needed is not None and token else None
    if row is not None and row.failed_at is None:
        _warn_if_expiring(row)
