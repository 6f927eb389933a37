"""Add, change and delete the further transports of email and the rules that choose between them, from pages.

Each function changes one of the settings `email.transports` and `email.routes`, and returns the new configuration,
which the caller applies after the commit. All functions raise Invalid if the setting is fixed by an option, the
environment or the file; otherwise Invalid has every error by field.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from appliance.accounts import settings
from appliance.core.errors import Invalid, NotFound
from appliance.core.i18n import gettext, ngettext
from appliance.settings import config, transports
from appliance.settings.config import LoadedConfig
from appliance.settings.schema import Config, Email, NamedTransport, Route
from appliance.settings.transports import ALL_KINDS, DEFAULT, DIRECT
from appliance.storage.database import scalar
from appliance.storage.transactions import require_write_transaction

MAX_TRANSPORTS, MAX_ROUTES = 20, 50
_TRANSPORTS, _ROUTES = "email.transports", "email.routes"
# The options that a stored secret belongs to: if one of them changes, the secret must be entered again.
_SERVER_OPTIONS = ("host", "port", "tls", "username", "base_url")
# Messages that may have been accepted by a transport, and are to be sent again with it or wait for a person.
_COUNT_IN_DOUBT = (
    "SELECT count(*) FROM retry_payload r JOIN message m ON m.id = r.message_id "
    "WHERE m.provider = ? AND m.status IN ('queued', 'held', 'sending', 'uncertain')"
)


def can_change() -> bool:
    """Return whether pages may change transports and rules."""
    return settings.can_set(_TRANSPORTS) and settings.can_set(_ROUTES)


def get(key: str, email: Email | None = None) -> NamedTransport:
    """Return the further transport with a key. Raises NotFound."""
    transport = transports.find_named(key, email or config.current().email)
    if transport is None:
        raise NotFound
    return transport


def add(kind: str, values: dict[str, Any]) -> LoadedConfig:
    """Add a transport of a kind with these fields of `NamedTransport`; raises Invalid beyond `MAX_TRANSPORTS`."""
    email = read_stored()
    if len(email.transports) >= MAX_TRANSPORTS:
        raise Invalid({"base": [gettext("There may be at most %(limit)s transports.", limit=MAX_TRANSPORTS)]})
    key = DIRECT if kind == DIRECT else _choose_key(str(values.get("name", "")), email)
    return _save_transports([*email.transports, _build(kind, values | {"key": key}, email)])


def update(key: str, values: dict[str, Any]) -> LoadedConfig:
    """Change the fields of a transport; secrets that are left out stay. Raises NotFound."""
    email = read_stored()
    stored = get(key, email)
    changed = _build(stored.kind, values | {"key": key}, email, stored)
    return _save_transports([changed if item.key == key else item for item in email.transports])


def delete(key: str) -> LoadedConfig:
    """Delete a transport. Raises NotFound, or Invalid while a rule or a message in doubt needs it."""
    email = read_stored()
    get(key, email)
    numbers = [str(number) for number, route in enumerate(email.routes, 1) if key in route.shares]
    if numbers:
        raise Invalid({"base": [gettext("A rule uses this transport: remove it there first (rule %(numbers)s).",
                                        numbers=", ".join(numbers))]})  # fmt: skip
    count = int(scalar(_COUNT_IN_DOUBT, (key,)))
    if count:
        raise Invalid({"base": [ngettext(
            "%(num)s message may have been sent with this transport. Decide about it in the outbox first.",
            "%(num)s messages may have been sent with this transport. Decide about them in the outbox first.", count,
        )]})  # fmt: skip
    return _save_transports([item for item in email.transports if item.key != key])


def build(kind: str, values: dict[str, Any], key: str | None = None) -> Email:
    """Return the settings of email as a transport with these fields would use them, to test it; nothing is stored."""
    email = config.current().email
    stored = get(key, email) if key is not None else None
    return transports.apply(_build(kind, values | {"key": key or "new"}, email, stored), email)


def _choose_key(name: str, email: Email) -> str:
    """Return a key made of a name, which no transport has."""
    words = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:30].strip("-")
    base = words if words[:1].isalpha() else f"transport-{words}".strip("-")
    taken, number = {*ALL_KINDS, DEFAULT, *transports.list_keys(email)}, 2
    key = base
    while key in taken:
        key, number = f"{base}-{number}", number + 1
    return key


def _build(kind: str, values: dict[str, Any], email: Email, stored: NamedTransport | None = None) -> NamedTransport:
    """Return a transport from form fields; empty options take their default, and empty secrets the stored ones.

    Raises Invalid with all errors.
    """
    declared = transports.list_options(kind)
    options = {name: value for name, value in values.get("options", {}).items() if value != ""}
    if kind == DIRECT and stored is None and DIRECT in transports.list_keys(email):
        raise Invalid({"base": [gettext("Email is sent directly already.")]})
    errors: dict[str, list[str]] = {}
    stored_secrets = {
        name: value
        for name, value in (stored.options if stored else {}).items()
        if name in declared and name not in options and transports.is_secret(declared[name])
    }
    if stored is not None and stored_secrets and _has_moved(stored, options):
        errors |= {f"options.{name}": [gettext("was entered for another server")] for name in stored_secrets}
    options = stored_secrets | options
    for name, fault in transports.find_option_faults(kind, options).items():
        errors.setdefault(f"options.{name}", [fault])
    fields = {name: value for name, value in values.items() if name != "options" and value != ""}
    checked: dict[str, Any] = {}
    for info in msgspec.structs.fields(NamedTransport):
        if info.name not in fields:
            if info.name == "name":
                errors[info.name] = [transports.IS_REQUIRED]
            continue
        try:
            checked[info.name] = msgspec.convert(fields[info.name], info.type, strict=False)
        except msgspec.ValidationError as error:
            errors[info.name] = [str(error)]
    if errors:
        raise Invalid(errors)
    return NamedTransport(**checked | {"kind": kind, "options": options})


def _has_moved(stored: NamedTransport, options: Mapping[str, Any]) -> bool:
    declared = transports.list_options(stored.kind)
    before = {name: stored.options.get(name, declared[name].default) for name in _SERVER_OPTIONS if name in declared}
    after = {name: options.get(name, declared[name].default) for name in before}
    return {name: str(value) for name, value in before.items()} != {name: str(value) for name, value in after.items()}


def save_route(number: int | None, values: dict[str, Any]) -> LoadedConfig:
    """Replace the rule with this number, counted from 1, or with None add one at the end.

    Raises NotFound, and Invalid for more than `MAX_ROUTES` rules.
    """
    email = read_stored()
    routes = list(email.routes)
    route = _build_route(values, email)
    if number is None:
        if len(routes) >= MAX_ROUTES:
            raise Invalid({"base": [gettext("There may be at most %(limit)s rules.", limit=MAX_ROUTES)]})
        routes.append(route)
    else:
        routes[_find_index(routes, number)] = route
    return _save_routes(routes)


def hash_route(route: Route) -> str:
    """Return a digest of a rule, by which a page names the rule that it shows: numbers change with the order."""
    return hashlib.sha256(msgspec.json.encode(route)).hexdigest()[:16]


def move_route(number: int, digest: str, step: int) -> LoadedConfig:
    """Exchange a rule with the one before (-1) or after it (1); at the end of the list nothing changes.

    Raises NotFound, also if the rule with this number has another digest.
    """
    routes = list(read_stored().routes)
    index = _find_index(routes, number, digest)
    other = min(max(index + step, 0), len(routes) - 1)
    routes[index], routes[other] = routes[other], routes[index]
    return _save_routes(routes)


def delete_route(number: int, digest: str) -> LoadedConfig:
    """Delete a rule. Raises NotFound, also if the rule with this number has another digest."""
    routes = list(read_stored().routes)
    del routes[_find_index(routes, number, digest)]
    return _save_routes(routes)


def get_route(number: int, email: Email | None = None) -> Route:
    """Return the rule with this number, counted from 1. Raises NotFound."""
    routes = list((email or config.current().email).routes)
    return routes[_find_index(routes, number)]


def _find_index(routes: list[Route], number: int, digest: str | None = None) -> int:
    if not 1 <= number <= len(routes) or digest not in (None, hash_route(routes[number - 1])):
        raise NotFound
    return number - 1


def _build_route(values: dict[str, Any], email: Email) -> Route:
    try:
        route = msgspec.convert(dict(values), Route, strict=False)
    except msgspec.ValidationError as error:
        raise Invalid({"shares": [str(error)]}) from None
    if not any(route.shares.values()):
        raise Invalid({"shares": [gettext("Give at least one transport a share above 0.")]})
    keys = {DEFAULT, *(transport.key for transport in email.transports)}
    faults = transports.find_route_faults(route, keys)
    if faults:
        raise Invalid({"shares": faults[:1]})
    return route


def read_stored() -> Email:
    """Return the settings of email as stored now: those of this process may be older, until they are replaced."""
    require_write_transaction()
    return config.get_loaded().with_pages(settings.load()).config.email


def _save_transports(changed: list[NamedTransport]) -> LoadedConfig:
    return settings.save({_TRANSPORTS: msgspec.to_builtins(changed) or None})


def _save_routes(changed: list[Route]) -> LoadedConfig:
    return settings.save({_ROUTES: msgspec.to_builtins(changed) or None})


def get_label(key: str, current: Config | None = None) -> str | None:
    """Return the name of a further transport, or None if there is none with this key."""
    transport = transports.find_named(key, (current or config.current()).email)
    return transport.name if transport is not None else None
