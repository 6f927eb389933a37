"""The files of an account's content: one JSON file for each list, segment, template, form and flow, and the pictures.

The name of a file identifies its object: `flows/welcome.json` keeps its name when the flow is renamed, and stands for
that flow in every account into which it was imported. `.campanero.json` stores the id of each file's object in each
account. A reference to another object is `{"$ref": "lists/news"}`, and the address of a picture is
`campanero-picture:NAME`.
"""

import json
import math
import os
import re
import stat
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from appliance.remote.errors import UsageError

FORMAT = 1
STATE_FILE = ".campanero.json"
PICTURES = "pictures"
MAX_FILE_BYTES = 8 * 1024 * 1024
# The maximum nesting of a file, above the 64 levels of an object of the API (docs/decisions.md#4). Functions that walk
# through a file are recursive.
MAX_DEPTH = 100
_MAX_DIGITS = 100
# The suffix of a flow's name in `.campanero.json`, under which the ids of its steps are stored.
_STEPS = "#steps"
_MAX_SLUG_CHARACTERS = 60
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,79}\Z")
_PICTURE_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}\.(png|jpg|gif|webp)\Z")
_PICTURE_ADDRESS = re.compile(r"campanero-picture:([A-Za-z0-9_.-]+)")
_REFERENCE = "$ref"
# The keys that hold the id of another object, or a list of ids, by the kind of the object.
_ID_KEYS = {
    "list_ids": "lists", "topic_ids": "lists", "contact_list_id": "lists", "segment_id": "segments",
}  # fmt: skip
# The kinds whose files have translations: of the object itself, and of each step of a flow.
_TRANSLATED_KINDS = ("templates", "flows")
_KINDS_OF_FIELDS = {"list": "lists", "segment": "segments", "flow": "flows"}


class Kind(NamedTuple):
    """A kind of object.

    `name` is the directory of its files and its path in the API. `fields` are the fields of a file. `query` are the
    parameters with which the objects to be exported are listed.
    """

    name: str
    fields: tuple[str, ...]
    query: dict[str, Any] = {}


_CONTENT = ("subject", "body", "preheader", "from_name", "from_email", "reply_to")
KINDS = (
    Kind("lists", ("name", "segment_id", "double_opt_in", "public")),
    Kind("segments", ("name", "filters")),
    Kind("templates", ("name", "channel", *_CONTENT, "design"), {"standalone": True}),
    Kind(
        "forms",
        (
            "name", "language", "list_ids", "origins", "fields", "double_opt_in", "redirect_url", "consent_text",
            "title", "intro", "button_text", "thanks_title", "thanks_text", "topic_ids", "topics_required",
        ),
    ),
    Kind("flows", ("name", "goal", "trigger", "steps", "data")),
)  # fmt: skip
KINDS_BY_NAME = {kind.name: kind for kind in KINDS}
# The names that `.campanero.json` may contain. A directory may come from others, so no file with another name is read
# or changed.
_STATE_NAME = re.compile(
    rf"(?:{'|'.join(KINDS_BY_NAME)})/[a-z0-9][a-z0-9-]{{0,79}}(?:{_STEPS})?|"
    rf"{PICTURES}/[A-Za-z0-9_-]{{1,80}}\.(?:png|jpg|gif|webp)"
)


class Directory:
    """A directory of content files, with the ids of their objects in one account.

    `account` identifies the account: the URL of the service and the account's id. Raises UsageError if
    `.campanero.json` is damaged, or if a folder is a symbolic link.
    """

    def __init__(self, path: Path, account: str) -> None:
        self.path, self._account = path, account
        for folder in (*KINDS_BY_NAME, PICTURES):
            if (path / folder).is_symlink():
                raise UsageError(f"{path / folder} is a link: replace it with a directory")
        self._state = self._read_state()
        ids = self._state["accounts"].get(account, {})
        if not isinstance(ids, dict) or not all(map(_STATE_NAME.fullmatch, ids)):
            raise UsageError(f"{self.path / STATE_FILE} is damaged")
        self.ids: dict[str, int] = {name: number for name, number in ids.items() if isinstance(number, int)}
        # The address of each uploaded picture by file name, and for each flow the stored ids of its steps by their ids
        # in the file.
        self.pictures: dict[str, str] = {name: value for name, value in ids.items() if isinstance(value, str)}
        self.steps: dict[str, dict[str, int]] = {
            name.removesuffix(_STEPS): value for name, value in ids.items() if isinstance(value, dict)
        }
        for numbers in self.steps.values():
            if not all(key.isdecimal() and isinstance(number, int) for key, number in numbers.items()):
                raise UsageError(f"{self.path / STATE_FILE} is damaged")

    def _read_state(self) -> dict[str, Any]:
        if not (self.path / STATE_FILE).exists():
            return {"format": FORMAT, "accounts": {}}
        state = read_json(self.path / STATE_FILE)
        if not isinstance(state, dict) or not isinstance(state.get("accounts"), dict):
            raise UsageError(f"{self.path / STATE_FILE} is damaged")
        if state.get("format") != FORMAT:
            raise UsageError(f"{self.path / STATE_FILE} has another format: use the version that wrote it")
        return state

    def save_state(self) -> None:
        """Write the ids of the files' objects to `.campanero.json`, in one rename."""
        steps = {f"{name}{_STEPS}": numbers for name, numbers in self.steps.items()}
        self._state["accounts"][self._account] = dict(sorted({**self.ids, **self.pictures, **steps}.items()))
        write_json(self.path / STATE_FILE, self._state)

    def read_objects(self) -> dict[str, dict[str, Any]]:
        """Return the content of all files by name, such as `flows/welcome`.

        Raises UsageError with the errors of all files, including references to missing objects and pictures.
        """
        objects, faults = {}, []
        for kind in KINDS:
            for path in sorted((self.path / kind.name).glob("*.json")):
                name = f"{kind.name}/{path.stem}"
                if not _NAME.match(path.stem):
                    faults.append(f"{path}: a name has small letters, digits and hyphens")
                    continue
                try:
                    value = read_json(path)
                except UsageError as error:
                    faults.append(str(error))
                    continue
                if not isinstance(value, dict):
                    faults.append(f"{path}: must be a JSON object")
                    continue
                is_translated = kind.name in _TRANSLATED_KINDS
                others = value.keys() - {*kind.fields, *(["translations"] if is_translated else [])}
                if others:
                    faults.append(f"{path}: unknown {', '.join(sorted(others))}")
                if is_translated and not _are_translations(value.get("translations"), kind.name == "flows"):
                    faults.append(f"{path}: translations must be an object such as the export writes")
                objects[name] = value
        if not objects and not faults:
            faults.append(f"{self.path} contains no content: lists, segments, templates, forms or flows")
        for name, value in objects.items():
            faults += [f"{name}: {target} does not exist" for target in find_references(value) if target not in objects]
            faults += [
                f"{name}: the picture {picture} does not exist"
                for picture in find_pictures(value)
                if not _PICTURE_NAME.match(picture) or not _is_own_file(self.path / PICTURES / picture)
            ]
        if faults:
            raise UsageError("\n".join(["the files cannot be imported:", *faults]))
        return objects

    def choose_name(self, kind: str, object_id: int, title: str) -> str:
        """Return the name of an object's file, such as `flows/welcome`: the known name, else one made of its title."""
        for name, number in self.ids.items():
            if number == object_id and name.startswith(f"{kind}/"):
                return name
        base = slugify(title) or kind.rstrip("s")
        taken = {*self.ids, *(f"{kind}/{path.stem}" for path in (self.path / kind).glob("*.json"))}
        slug, number = base, 2
        while f"{kind}/{slug}" in taken:
            slug, number = f"{base}-{number}", number + 1
        self.ids[f"{kind}/{slug}"] = object_id
        return f"{kind}/{slug}"


def slugify(title: str) -> str:
    """Return a title as a file name: `Grüße & more` becomes `grusse-more`. It may be empty."""
    plain = unicodedata.normalize("NFKD", title.casefold()).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:_MAX_SLUG_CHARACTERS].strip("-")


def _are_translations(value: Any, is_flow: bool) -> bool:
    """Return whether a value is None, or the texts by language; for a flow, these by the id of the step."""
    if value is None:
        return True
    if not isinstance(value, dict):
        return False
    if is_flow:
        return all(key.isdecimal() and _are_translations(texts, False) for key, texts in value.items())
    return all(isinstance(texts, dict) for texts in value.values())


def _is_own_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def read_file(path: Path) -> bytes:
    """Return the content of a file. Raises OSError, or UsageError for a link, a device or a file that is too large."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise UsageError(f"{path}: not a regular file")
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise UsageError(f"{path}: larger than {MAX_FILE_BYTES // 1024**2} MiB")
    return content


def write_file(path: Path, content: bytes) -> None:
    """Write a file in one rename; a symbolic link at its path is replaced, not followed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.unlink(missing_ok=True)
    with part.open("xb") as file:
        file.write(content)
    part.replace(path)


def read_json(path: Path) -> Any:
    """Return the JSON of a file.

    Raises UsageError if the file cannot be read or is not JSON, or if its content cannot be sent to the service.
    """
    try:
        text = read_file(path).decode("utf-8")
        value = json.loads(text, parse_constant=_refuse_constant, parse_int=_parse_integer, parse_float=_parse_float)
        if _is_too_deep(value):
            raise RecursionError
        if "\\u" in text:
            # Half of a surrogate pair cannot be encoded as UTF-8, so neither the log nor the page could contain it.
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except RecursionError:
        raise UsageError(f"{path}: nested deeper than {MAX_DEPTH} levels") from None
    except UnicodeEncodeError:
        raise UsageError(f"{path}: contains half of a surrogate pair (\\ud800 to \\udfff)") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    return value


def _refuse_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _parse_integer(digits: str) -> int:
    """Return an integer. Raises ValueError for one that no request can contain, before Python has its own error."""
    if len(digits) > _MAX_DIGITS:
        raise ValueError(f"a number has more than {_MAX_DIGITS} digits")
    return int(digits)


def _parse_float(text: str) -> float:
    """Return a number. Raises ValueError for one that becomes infinite, which is not JSON either."""
    number = float(text)
    if math.isinf(number):
        raise ValueError("a number is too large")
    return number


def _is_too_deep(value: Any) -> bool:
    """Return whether lists and objects are nested deeper than `MAX_DEPTH`."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [
            inner
            for container in level
            if isinstance(container, dict | list)
            for inner in (container.values() if isinstance(container, dict) else container)
        ]
        if not level:
            return False
    return True


def write_json(path: Path, value: Any) -> bool:
    """Write a value as indented JSON, which version control can compare, and return whether the file changed."""
    content = (json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode()
    with suppress(OSError, UsageError):
        if read_file(path) == content:
            return False
    write_file(path, content)
    return True


def find_references(value: Any) -> list[str]:
    """Return the names of the objects that a file refers to, each once, in the order of their first occurrence."""
    return list(dict.fromkeys(_iter_references(value)))


def _iter_references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if set(value) == {_REFERENCE}:
            yield str(value[_REFERENCE])
            return
        for item in value.values():
            yield from _iter_references(item)
    elif isinstance(value, list):
        for item in value:
            yield from _iter_references(item)


def find_pictures(value: Any) -> list[str]:
    """Return the names of the pictures that a file refers to, each once."""
    return list(dict.fromkeys(_PICTURE_ADDRESS.findall(json.dumps(value))))


def with_references(value: Any, name_of: Callable[[str, int], str | None], kinds_of_fields: dict[str, str]) -> Any:
    """Return a value of the API in which the ids of lists and segments are replaced by `{"$ref": NAME}`.

    `name_of(kind, id)` returns the name of the object's file, or None for an object that does not exist; its id stays.
    `kinds_of_fields` has the kind of the objects whose ids are the values of a filter field (`read_filter_fields`).
    """

    def refer(kind: str, item: Any) -> Any:
        if isinstance(item, list):
            return [refer(kind, part) for part in item]
        number = int(item) if isinstance(item, str) and item.isdecimal() else item
        name = name_of(kind, number) if isinstance(number, int) and not isinstance(number, bool) else None
        return item if name is None else {_REFERENCE: name}

    def convert(item: Any) -> Any:
        if isinstance(item, list):
            return [convert(part) for part in item]
        if not isinstance(item, dict):
            return item
        kind = kinds_of_fields.get(str(item.get("name"))) if "predicate" in item else None
        kinds = {**_ID_KEYS, **({"value": kind} if kind else {})}
        return {key: refer(kinds[key], part) if key in kinds else convert(part) for key, part in item.items()}

    return convert(value)


def without_references(value: Any, ids: dict[str, int]) -> Any:
    """Return the value of a file with ids of the account in place of references. Raises KeyError for a missing id."""
    if isinstance(value, list):
        return [without_references(item, ids) for item in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {_REFERENCE}:
        return ids[str(value[_REFERENCE])]
    return {key: without_references(item, ids) for key, item in value.items()}


def replace_pictures(value: Any, replace: Callable[["re.Match[str]"], str], pattern: "re.Pattern[str]") -> Any:
    """Return a value in which each match of a pattern in its texts is replaced by the result of `replace`."""
    if isinstance(value, str):
        return pattern.sub(replace, value)
    if isinstance(value, list):
        return [replace_pictures(item, replace, pattern) for item in value]
    if isinstance(value, dict):
        return {key: replace_pictures(item, replace, pattern) for key, item in value.items()}
    return value


def with_addresses(value: Any, addresses: dict[str, str]) -> Any:
    """Return the value of a file with the addresses of its pictures in the account; others are unchanged."""
    return replace_pictures(value, lambda match: addresses.get(f"{PICTURES}/{match[1]}", match[0]), _PICTURE_ADDRESS)


def read_filter_fields(spec: dict[str, Any]) -> dict[str, str]:
    """Return the filter fields whose values are ids of objects, by name and alias, with the kind of these objects.

    The kind is `lists`, `segments` or `flows`. `spec` is the response to `GET /segments/spec`.
    """
    fields: dict[str, str] = {}
    for field in spec["fields"]:
        kind = _KINDS_OF_FIELDS.get(field["of"] or "")
        if kind is not None:
            fields |= dict.fromkeys((field["name"], *field["aliases"]), kind)
    return fields


def sort_by_references(objects: dict[str, dict[str, Any]]) -> list[str]:
    """Return the names of all objects, each after those that it refers to. Raises UsageError for a circular reference.

    References to flows are ignored, because flows may refer to each other.
    """
    ordered: dict[str, None] = {}
    for first in objects:
        # The names that lead to the current one, each with its references that were not followed yet. This is not
        # recursive, because a chain may have as many names as there are files.
        path = {} if first in ordered else {first: _iter_targets(objects[first])}
        while path:
            name, targets = next(reversed(path.items()))
            target = next((target for target in targets if target not in ordered), None)
            if target is None:
                del path[name]
                ordered[name] = None
            elif target in path:
                names = list(path)
                raise UsageError(f"these refer to each other: {' → '.join([*names[names.index(target) :], target])}")
            else:
                path[target] = _iter_targets(objects[target])
    return list(ordered)


def _iter_targets(value: Any) -> Iterator[str]:
    return (target for target in find_references(value) if not target.startswith("flows/"))


def iter_steps(steps: Any) -> Iterator[dict[str, Any]]:
    """Yield the steps of a flow, including those in branches, in an order that depends only on the tree of steps."""
    if isinstance(steps, list):
        for step in steps:
            yield from iter_steps(step)
    elif isinstance(steps, dict):
        if isinstance(steps.get("type"), str) and isinstance(steps.get("id"), int | None):
            yield steps
        for key in sorted(steps):
            if key != "design":
                yield from iter_steps(steps[key])


def renumber_steps(value: Any, numbers: dict[int, int]) -> Any:
    """Return steps, or the test scripts of a flow, with ids of steps replaced by `numbers`; other ids are unchanged."""
    if isinstance(value, list):
        return [renumber_steps(item, numbers) for item in value]
    if not isinstance(value, dict):
        return value
    is_step = isinstance(value.get("type"), str)
    keys = {"id", "step_id"} if is_step else {"step"}
    return {
        key: numbers.get(part, part) if key in keys and isinstance(part, int)
        else part if key == "design" else renumber_steps(part, numbers)
        for key, part in value.items()
    }  # fmt: skip
