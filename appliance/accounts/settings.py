"""The settings people change on a page: the layer between the file and the defaults.

A page may change how mail and SMS leave; what option, environment or file say stands above it and is shown locked.
Secrets are sealed with the installation's key, so that the database alone tells none of them.
"""

import base64
import logging
from collections.abc import Mapping
from typing import Any

import msgspec

from appliance.core import clock, crypto, tokens
from appliance.core.errors import ConfigError, Invalid
from appliance.sending.sms.providers import PROVIDERS
from appliance.settings import config
from appliance.settings.config import Loaded
from appliance.storage.models import Setting
from appliance.storage.work import writing

log = logging.getLogger("campanero")
_PURPOSE = "settings of pages"
# What a running service can take over: senders are made anew for it
_OF_PAGES = (
    "email.transport", "email.relay.host", "email.relay.port", "email.relay.username", "email.relay.password",
    "email.relay.tls", "email.allow_unverified_domains", "email.connections", "email.rate_per_second",
    "email.rate_per_hour",
    "sms.transport", "sms.rate_per_second", "sms.twilio.base_url", "sms.twilio.account_sid", "sms.twilio.auth_token",
    "sms.twilio.from", "sms.http.url", "sms.http.secret",
)  # fmt: skip
# A secret belongs to the server it was written for: with it alone nobody can have it sent somewhere else
_BOUND = {
    "email.relay.password": ("email.relay.host", "email.relay.port", "email.relay.tls", "email.relay.username"),
    "sms.twilio.auth_token": ("sms.twilio.base_url", "sms.twilio.account_sid"),
    "sms.http.secret": ("sms.http.url",),
}


def read() -> dict[str, Any]:
    """Return what was set on pages, by dotted name; a name that this version does not know is left out.

    A secret that was sealed with another key counts as not set, and the log says so.
    """
    known = dict(config.leaves())
    found = {row.name: row.value for row in Setting.select() if row.name in known}
    opened = {name: _opened(name, value) if config.is_secret(known[name]) else value for name, value in found.items()}
    return {name: value for name, value in opened.items() if value is not None}


def may_set(name: str) -> bool:
    """Return whether a page may change a setting: not what option, environment or file have fixed."""
    return name in _OF_PAGES and config.layers().sources[name] in ("page", "default")


def save(values: Mapping[str, Any]) -> Loaded:
    """Keep settings, and answer the configuration with them, which the caller puts to use after the commit.

    None forgets a setting, so that the default counts again. Raises Invalid with every fault, by dotted name; then
    nothing is kept.
    """
    writing()
    checked = _checked(values)
    loaded = joined(checked)
    if lacks := PROVIDERS[loaded.config.sms.transport].lacks(loaded.config.sms):
        raise Invalid({name: [words] for name, words in lacks})
    known = dict(config.leaves())
    for name, value in checked.items():
        if value is None:
            Setting.delete().where(Setting.name == name).execute()
            continue
        kept = _sealed(name, value) if config.is_secret(known[name]) else value
        Setting.insert(name=name, value=kept, updated_at=clock.now_ms()).on_conflict_replace().execute()
    return loaded


def joined(values: Mapping[str, Any]) -> Loaded:
    """Return the configuration as it would be with these settings; nothing is kept.

    Raises Invalid with every fault, by dotted name. Where the server changes that a secret was written for, the secret
    has to be among the settings; one that file or environment fixed holds its server in place.
    """
    after = {name: value for name, value in {**read(), **values}.items() if value is not None}
    try:
        loaded = config.layers().with_pages(after)
    except ConfigError as error:
        raise _faults(error) from None
    before, wrong = config.layers().config, {}
    for secret, server in _BOUND.items():
        moved = [name for name in server if config.value_of(loaded.config, name) != config.value_of(before, name)]
        if moved and config.value_of(before, secret) and not values.get(secret):
            wrong[secret if may_set(secret) else moved[0]] = ["was written for another server"]
    if wrong:
        raise Invalid(wrong)
    return loaded


def _checked(values: Mapping[str, Any]) -> dict[str, Any]:
    known, wrong, checked = dict(config.leaves()), {}, {}
    for name, value in values.items():
        if not may_set(name):
            wrong[name] = ["cannot be set on a page"]
            continue
        try:
            checked[name] = None if value is None else msgspec.convert(value, known[name].type, strict=False)
        except msgspec.ValidationError as error:
            wrong[name] = [str(error)]
    if wrong:
        raise Invalid(wrong)
    return checked


def _faults(error: ConfigError) -> Invalid:
    """Return the faults of a joined configuration by the setting each begins with."""
    found: dict[str, list[str]] = {}
    known = dict(config.leaves())
    for fault in str(error).split("; "):
        name, _, rest = fault.partition(":")
        setting = name.partition(" ")[0]
        found.setdefault(setting if setting in known else "base", []).append(rest.strip() or fault)
    return Invalid(found)


def _sealed(name: str, value: str) -> dict[str, str]:
    sealed = crypto.seal(tokens.derive(_PURPOSE), name, value.encode())
    return {"sealed": base64.b64encode(sealed).decode()}


def _opened(name: str, value: Any) -> str | None:
    sealed = base64.b64decode(value["sealed"]) if isinstance(value, dict) else b""
    plain = crypto.opened(tokens.derive(_PURPOSE), name, sealed)
    if plain is None:
        log.error("%s was set on a page and sealed with another key than this installation's; set it again", name)
        return None
    return plain.decode()
