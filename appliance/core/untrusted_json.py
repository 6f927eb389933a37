"""Decode JSON that another machine, or another writer of a store or a folder, may have changed."""

from pathlib import Path
from typing import TypeVar

import msgspec

from appliance.core import data_dir

T = TypeVar("T")


class InvalidJson(ValueError):
    """The content is not JSON of the expected type, or is too large or nested too deeply; the message is the reason."""


def decode(content: bytes, type_: type[T], max_bytes: int) -> T:
    """Return the value of JSON as `type_`, a type of msgspec. Raises InvalidJson, and no other error.

    Values of unknown fields are skipped, but they are parsed too, so the nesting is limited there as well: by the
    limit of recursion of the interpreter, which is about a thousand levels.
    """
    if len(content) > max_bytes:
        raise InvalidJson(f"it has {len(content):,} bytes, more than {max_bytes:,}")
    try:
        return msgspec.json.decode(content, type=type_)
    except RecursionError:
        raise InvalidJson("it is nested too deeply") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidJson(str(error)) from None


def decode_file(path: Path, type_: type[T], max_bytes: int) -> T:
    """Return the value in a JSON file. Raises InvalidJson, FileNotFoundError if there is no file, and OSError.

    At most `max_bytes` and one byte are read, and nothing is read from a pipe or a device, which may never end.
    """
    if kind := data_dir.irregular_kind(path):
        raise InvalidJson(f"it is {kind}")
    with path.open("rb") as file:
        return decode(file.read(max_bytes + 1), type_, max_bytes)
