"""Ways to make a request invalid, one field at a time, derived from its declaration."""

from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from msgspec import Meta, Struct, UnsetType
from msgspec.structs import fields

from tests.kit.tenants import MISSING_ID

INVALID_TEMPLATE = "{{ contact.first_name"
# The value of an InvalidChange that removes the key
REMOVED = object()


class InvalidChange(NamedTuple):
    """A change that makes a request invalid: keys and indexes that lead to it, the new value, the expected error."""

    path: tuple[str | int, ...]
    value: Any
    error_path: str

    def overlaps(self, other: "InvalidChange") -> bool:
        """Return whether one of two changes is at the path of the other, or inside it."""
        short = min(len(self.path), len(other.path))
        return self.path[:short] == other.path[:short]


def format_path(path: tuple[str | int, ...]) -> str:
    """Return keys and indexes as a path in the form of errors, such as `a.b[0]`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def apply_changes(body: Any, changes: list[InvalidChange]) -> Any:
    """Return a copy of a body with the changes applied."""
    for change in changes:
        body = _replace(body, change.path, change.value)
    return body


def _replace(value: Any, path: tuple[str | int, ...], new: Any) -> Any:
    if not path:
        return new
    key, rest = path[0], path[1:]
    if isinstance(key, int):
        items = list(value) if isinstance(value, list) else []
        items += [{}] * (key + 1 - len(items))
        items[key] = _replace(items[key], rest, new)
        return items
    mapping = dict(value) if isinstance(value, dict) else {}
    inner = _replace(mapping.get(key), rest, new)
    if inner is REMOVED:
        mapping.pop(key, None)
    else:
        mapping[key] = inner
    return mapping


def changes_of_struct(kind: type[Struct], path: tuple[str | int, ...] = ()) -> Iterator[InvalidChange]:
    """Yield changes that make the fields of a Struct invalid, including nested ones."""
    for info in fields(kind):
        path_ = (*path, info.encode_name)
        if info.required:
            yield InvalidChange(path_, REMOVED, format_path(path_))
        yield from changes_of_type(info.type, path_)
    if kind.__struct_config__.forbid_unknown_fields:
        path_ = (*path, "no_such_key")
        yield InvalidChange(path_, 1, format_path(path_))
    for name in getattr(kind, "REFUSED", {}):
        path_ = (*path, name)
        yield InvalidChange(path_, "x", format_path(path_))


def changes_of_type(kind: Any, path: tuple[str | int, ...]) -> Iterator[InvalidChange]:
    """Yield changes that make a value of a type invalid."""
    options = [option for option in _options(kind) if option is not UnsetType]
    error_path = format_path(path)
    if NoneType not in options and not any(_unwrap(option)[0] is Any for option in options):
        yield InvalidChange(path, None, error_path)
    options = [option for option in options if option is not NoneType]
    if len(options) > 1:
        return
    plain, metas = _unwrap(options[0])
    extra = {key: value for meta in metas for key, value in (meta.extra or {}).items()}
    for value in _invalid_values(plain, metas, extra):
        yield InvalidChange(path, value, error_path)
    if isinstance(plain, type) and issubclass(plain, Struct):
        yield InvalidChange(path, 5, error_path)
        yield from changes_of_struct(plain, path)
    elif get_origin(plain) is list:
        yield InvalidChange(path, "x", error_path)
        [each] = get_args(plain)
        for inner in (_unwrap(option)[0] for option in _options(each)):
            if isinstance(inner, type) and issubclass(inner, Struct):
                yield from changes_of_struct(inner, (*path, 0))
        most = next((meta.max_length for meta in metas if meta.max_length is not None), None)
        if most is not None and most <= 500:
            yield InvalidChange(path, [1] * (most + 1), error_path)


def _invalid_values(plain: Any, metas: list[Meta], extra: dict[str, Any]) -> Iterator[Any]:
    if plain is bool or plain is float:
        yield "x"
    elif plain is int and "read" not in extra:
        yield "x"
        yield from (meta.ge - 1 for meta in metas if meta.ge is not None)
        yield from (meta.le + 1 for meta in metas if meta.le is not None)
    elif extra.get("read") is not None:
        yield "soon"
    elif plain is str:
        yield 5
        yield "a\x00b"
        if extra.get("line"):
            yield "a\nb"
        if extra.get("filled"):
            yield " "
        if extra.get("check") or any(meta.pattern for meta in metas):
            yield "not; right"
        most = min((meta.max_length for meta in metas if meta.max_length is not None), default=None)
        if most is not None and most < 100_000:
            yield "x" * (most + 1)
    elif get_origin(plain) is Literal:
        yield "no such word"
    elif plain is dict or get_origin(plain) is dict:
        yield 5
        if extra.get("bytes") and extra["bytes"] < 100_000:
            yield {"x": "x" * extra["bytes"]}


def _is_id(name: str, metas: list[Meta]) -> bool:
    return name.endswith(("_id", "_ids")) and any(meta.ge == 1 for meta in metas)


def changes_of_ids(kind: type[Struct], path: tuple[str | int, ...] = ()) -> Iterator[InvalidChange]:
    """Yield a change for each field of a Struct that is an id or a list of ids, to an id that never existed."""
    for info in fields(kind):
        field_path = (*path, info.encode_name)
        for option in _options(info.type):
            plain, metas = _unwrap(option)
            if plain is int and _is_id(info.encode_name, metas):
                yield InvalidChange(field_path, MISSING_ID, format_path(field_path))
            elif get_origin(plain) is list and _is_id(info.encode_name, _unwrap(get_args(plain)[0])[1]):
                yield InvalidChange(field_path, [MISSING_ID], format_path(field_path))
            elif isinstance(plain, type) and issubclass(plain, Struct):
                yield from changes_of_ids(plain, field_path)


def _options(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _unwrap(kind: Any) -> tuple[Any, list[Meta]]:
    metas: list[Meta] = []
    while get_origin(kind) is Annotated:
        metas += [meta for meta in kind.__metadata__ if isinstance(meta, Meta)]
        kind = kind.__origin__
    return kind, metas
