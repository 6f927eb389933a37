"""The file of settings that people copy, written from their declarations."""

from types import NoneType
from typing import Any

import msgspec

from appliance.settings import config


def example() -> str:
    """Write `config.example.toml`: every setting with its default and its line of help."""
    lines = [
        "# Every setting with its default. Order: option, environment (CAMPANERO_EMAIL__RELAY__HOST), this file,",
        "",
    ]
    lines[0:1] = [lines[0], "# the settings pages, these defaults. Save it as campanero.toml in the data directory."]
    section = ""
    for name, info in config.leaves():
        head, _, key = name.rpartition(".")
        if head != section:
            section = head
            lines += ["", f"[{section}]"]
        default = info.default_factory() if info.default is msgspec.NODEFAULT else info.default
        lines.append(f"{key} = {_toml(default)}  # {config.help_of(info)}")
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, NoneType):
        raise TypeError("a setting needs a default")
    return (
        msgspec.json.encode(value).decode().replace(",", ", ")
        if isinstance(value, list)
        else (msgspec.json.encode(value).decode())
    )
