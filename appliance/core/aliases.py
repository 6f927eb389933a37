"""Second names for fields of request bodies, which published clients of other services send.

A Struct declares them as `ALIASES`. Before its fields are read, the value of an alias is moved to its field; errors of
the field are reported at the alias, because that is what the client sent. The OpenAPI document has each alias as a
property that is deprecated.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from msgspec import Struct

from appliance.core.errors import Invalid, summarize


class Alias(NamedTuple):
    """A second name for the field at `path`, such as `trigger_attributes.segment_id`.

    With `is_list`, the name is an alias only if its value is a list, because it is also a field of its own.
    """

    path: str
    is_list: bool = False


Aliases = Mapping[str, Alias]


class Resolved(NamedTuple):
    """An object without aliases: `used` maps fields to the aliases by which they were sent, `errors` aliases to errors.

    An alias beside its field is an error unless both have the same value.
    """

    raw: dict[str, Any]
    used: dict[str, str]
    errors: dict[str, str]


def list_aliases(kind: type[Struct] | None) -> Aliases:
    """Return the aliases of a Struct by their name."""
    aliases: Aliases = getattr(kind, "ALIASES", {})
    return aliases


def resolve(aliases: Aliases, raw: dict[str, Any]) -> Resolved:
    """Return an object with the values of all aliases moved to their fields."""
    resolved = Resolved(raw, {}, {})
    for name, alias in aliases.items():
        if name not in raw or (alias.is_list and not isinstance(raw[name], list)):
            continue
        resolved = resolved._replace(raw=dict(resolved.raw))
        value = resolved.raw.pop(name)
        if _put(resolved.raw, alias.path.split("."), value):
            resolved.used[alias.path] = name
        else:
            resolved.errors[name] = f"must be the same as {alias.path}, or absent"
    return resolved


def _put(target: dict[str, Any], path: list[str], value: Any) -> bool:
    """Put a value at a path of keys, and return False if another value is there.

    If a part of the path is not an object, nothing is changed; reading the field reports the error.
    """
    *parents, name = path
    for parent in parents:
        inner = target.get(parent, {})
        if not isinstance(inner, dict):
            return True  # reading the field reports it
        target[parent] = dict(inner)  # the JSON of the client stays as it is
        target = target[parent]
    if name in target and target[name] != value:
        return False
    target[name] = value
    return True


def rename_paths(fields: Mapping[str, list[str]], used: Mapping[str, str]) -> dict[str, list[str]]:
    """Return errors by path, with the alias in place of each field that was sent by an alias (`rename_path`)."""
    return {rename_path(path, used): messages for path, messages in fields.items()}


def rename_path(path: str, used: Mapping[str, str]) -> str:
    """Return a path with the alias in place of the field, if the field or one that contains it was sent by an alias.

    An object that contains such a field, such as the free data of an audience, gets the alias as its path, too. Any
    other path is returned unchanged.
    """
    field = next((field for field in used if re.match(rf"{re.escape(field)}(?!\w)", path)), None)
    if field is not None:
        return used[field] + path[len(field) :]
    return next((alias for field, alias in used.items() if field.startswith(f"{path}.")), path)


def name_as_sent(error: Invalid, used: Mapping[str, str]) -> Invalid:
    """Return the error with the aliases that the client sent in place of the fields; the same error without aliases."""
    renamed = rename_paths(error.fields, used) if used else error.fields
    if renamed == error.fields:
        return error
    message = "" if error.message == summarize(error.fields) else error.message
    return Invalid(renamed, error.reason, message, **error.extra)
