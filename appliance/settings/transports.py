"""The transports of email: the one of `email.transport`, and those of `email.transports` with their kinds and options.

A transport has a key, which the ledger stores as the `provider` of a message. The key of the default transport is its
kind; each further one has a key of its own, except direct delivery, of which there can be only one. `email.routes`
says which transport sends what (`sending/messages/transport_choice.py`).
"""

from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import Any, get_args

import msgspec
from msgspec.structs import FieldInfo, fields

from appliance.settings.schema import Email, NamedTransport, Route

# Names the default transport in a rule, whatever its kind is.
DEFAULT = "default"
CAPTURE, DIRECT = "capture", "direct"
IS_REQUIRED = "is required"


def _list_kinds() -> tuple[str, ...]:
    declared = next(info.type for info in fields(Email) if info.name == "transport")
    return get_args(getattr(declared, "__origin__", declared))


# `ALL_KINDS` are the values of `email.transport`. Further transports may be of `KINDS`, which lack the test inbox and
# the APIs of mailboxes, because the installation has one consent for each provider of mailboxes.
ALL_KINDS = _list_kinds()
KINDS = tuple(kind for kind in ALL_KINDS if kind not in (CAPTURE, "google", "microsoft"))


@cache
def list_options(kind: str) -> dict[str, FieldInfo]:
    """Return the options of a kind by name: the settings of its section of `email`. Direct delivery has none here."""
    section = next((info.type for info in fields(Email) if info.name == kind and kind != DIRECT), None)
    return {} if section is None else {info.name: info for info in fields(section)}


def get_kind(key: str, email: Email) -> str:
    """Return the kind of the transport with a key; a key that no further transport has is returned unchanged."""
    for transport in email.transports:
        if transport.key == key:
            return transport.kind
    return key


def find_named(key: str, email: Email) -> NamedTransport | None:
    """Return the further transport with a key, or None."""
    return next((transport for transport in email.transports if transport.key == key), None)


def build_settings(key: str, email: Email) -> Email:
    """Return the settings of email as the transport with a key uses them: with its kind, options and connections."""
    transport = find_named(key, email)
    return email if transport is None else apply(transport, email)


def apply(transport: NamedTransport, email: Email) -> Email:
    """Return the settings of email with the kind, options and connections of a valid further transport."""
    changes: dict[str, Any] = {"transport": transport.kind, "connections": transport.connections}
    if list_options(transport.kind):
        section = type(getattr(email, transport.kind))
        changes[transport.kind] = msgspec.convert(transport.options, section, strict=False)
    return msgspec.structs.replace(email, **changes)


def list_keys(email: Email) -> tuple[str, ...]:
    """Return the keys of all transports, the default one first."""
    return (email.transport, *(transport.key for transport in email.transports))


def is_required(info: FieldInfo) -> bool:
    """Return whether an option must have a value."""
    return bool(_read_extra(info).get("required"))


def is_secret(info: FieldInfo) -> bool:
    """Return whether an option is a secret."""
    return bool(_read_extra(info).get("secret"))


def _read_extra(info: FieldInfo) -> dict[str, Any]:
    metas = getattr(info.type, "__metadata__", ())
    return {key: value for meta in metas if isinstance(meta, msgspec.Meta) for key, value in (meta.extra or {}).items()}


def find_option_faults(kind: str, options: Mapping[str, Any]) -> dict[str, str]:
    """Return the errors in the options of a transport of this kind, by name of the option."""
    declared, faults = list_options(kind), {}
    for name in options.keys() - declared.keys():
        faults[name] = f"is not an option of {kind}"
    for name, info in declared.items():
        if name in options:
            try:
                msgspec.convert(options[name], info.type, strict=False)
            except msgspec.ValidationError as error:
                faults[name] = str(error)
                continue
        if is_required(info) and not options.get(name, info.default):
            faults[name] = IS_REQUIRED
    return faults


def find_faults(email: Email) -> list[str]:
    """Return the errors in the further transports and the rules; each begins with the name of the setting."""
    faults = []
    counts = Counter(list_keys(email))
    for transport in email.transports:
        where = f"email.transports: {transport.key}"
        if transport.kind not in KINDS:
            faults.append(f"{where}: kind must be one of {', '.join(KINDS)}")
            continue
        if (transport.kind == DIRECT) != (transport.key == DIRECT):
            faults.append(f"{where}: the key of direct delivery must be {DIRECT}, and no other transport may have it")
        elif transport.key in (*ALL_KINDS, DEFAULT) and transport.key != DIRECT:
            faults.append(f"{where}: the key is reserved")
        if counts[transport.key] > 1:
            faults.append(f"{where}: the key is used twice")
            counts[transport.key] = 1
        faults += [
            f"{where}: {name} {fault}" for name, fault in find_option_faults(transport.kind, transport.options).items()
        ]
    keys = {DEFAULT, *(transport.key for transport in email.transports)}
    for number, route in enumerate(email.routes, 1):
        faults += [f"email.routes: rule {number} {fault}" for fault in find_route_faults(route, keys)]
    return faults


def find_route_faults(route: Route, keys: set[str]) -> list[str]:
    """Return the errors in a rule, such as `needs a transport with a share above 0`.

    `keys` are `default` and the keys of the further transports.
    """
    faults = [f"names the transport {key}, which does not exist" for key in route.shares if key not in keys]
    if not any(route.shares.values()):
        faults.append("needs a transport with a share above 0")
    return faults
