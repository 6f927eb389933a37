"""The settings people change on a page: the layer between the file and the defaults.

A page may change how mail and SMS leave; what option, environment or file say stands above it and is shown locked.
Secrets are sealed with the installation's key, so that the database alone tells none of them.
"""

import base64
import logging
from collections.abc import Mapping
from typing import Any

import msgspec

from appliance import clock, config, sealing, tokens
from appliance.config import Loaded
from appliance.db.work import writing
from appliance.errors import ConfigError, Invalid
from appliance.sms.providers import PROVIDERS
from appliance.tables import Setting

log = logging.getLogger("campanero")
_PURPOSE = "settings of pages"
# What a running service can take over: senders are made anew for it
_OF_PAGES = (
    "email.transport", "email.relay.host", "email.relay.port", "email.relay.username", "email.relay.password",
    "email.relay.tls", "email.connections", "email.rate_per_second", "email.rate_per_hour",
    "sms.transport", "sms.rate_per_second", "sms.twilio.base_url", "sms.twilio.account_sid", "sms.twilio.auth_token",
    "sms.twilio.from", "sms.http.url", "sms.http.secret",
)  # fmt: skip


def read() -> dict[str, Any]:
    """Answer what was set on pages, by dotted name; a name that this version does not know is left out.

    A secret that was sealed with another key counts as not set, and the log says so.
    """
    known = dict(config.leaves())
    found = {row.name: row.value for row in Setting.select() if row.name in known}
    opened = {name: _opened(name, value) if config.is_secret(known[name]) else value for name, value in found.items()}
    return {name: value for name, value in opened.items() if value is not None}


def may_set(name: str) -> bool:
    """Say whether a page may change a setting: not what option, environment or file have fixed."""
    return name in _OF_PAGES and config.layers().sources[name] in ("page", "default")


def save(values: Mapping[str, Any]) -> Loaded:
    """Keep settings, and answer the configuration with them, which the caller puts to use after the commit.

    None forgets a setting, so that the default counts again. Raises Invalid with every fault, by dotted name; then
    nothing is kept.
    """
    writing()
    checked = _checked(values)
    after = {name: value for name, value in (read() | checked).items() if value is not None}
    try:
        loaded = config.layers().with_pages(after)
    except ConfigError as error:
        raise Invalid(_by_name(str(error), values)) from None
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


def _checked(values: Mapping[str, Any]) -> dict[str, Any]:
    known, faults, checked = dict(config.leaves()), {}, {}
    for name, value in values.items():
        if not may_set(name):
            faults[name] = ["cannot be set on a page"]
            continue
        try:
            checked[name] = None if value is None else msgspec.convert(value, known[name].type, strict=False)
        except msgspec.ValidationError as error:
            faults[name] = [str(error)]
    if faults:
        raise Invalid(faults)
    return checked


def _by_name(words: str, values: Mapping[str, Any]) -> dict[str, list[str]]:
    """Sort the faults of a joined configuration by the setting each begins with."""
    found: dict[str, list[str]] = {}
    for fault in words.split("; "):
        name, _, rest = fault.partition(":")
        known = name.partition(" ")[0]
        found.setdefault(known if known in values else "base", []).append(rest.strip() or fault)
    return found


def _sealed(name: str, value: str) -> dict[str, str]:
    sealed = sealing.seal(tokens.derive(_PURPOSE), name, value.encode())
    return {"sealed": base64.b64encode(sealed).decode()}


def _opened(name: str, value: Any) -> str | None:
    sealed = base64.b64decode(value["sealed"]) if isinstance(value, dict) else b""
    plain = sealing.opened(tokens.derive(_PURPOSE), name, sealed)
    if plain is None:
        log.error("%s was set on a page and sealed with another key than this installation's; set it again", name)
        return None
    return plain.decode()
