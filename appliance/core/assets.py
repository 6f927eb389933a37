"""Files we ship: found beside the packages from a clone and inside the executable alike."""

import json
import platform
from importlib import metadata
from pathlib import Path

import apsw
from jinja2 import BaseLoader, FileSystemLoader, ModuleLoader

from appliance.core.errors import Refused

ROOT = Path(__file__).resolve().parents[2]
# Folders of templates, which the executable carries compiled (packaging/campanero.spec)
TEMPLATES = ("ui/html", "appliance/content/designs/sections", "appliance/public/html")
COMPILED = "compiled-templates"


def path(*parts: str) -> Path:
    """Return where a shipped file or folder is, for example `path("static")`."""
    return ROOT.joinpath(*parts)


def template_loader(folder: str) -> BaseLoader:
    """Return the loader of one of `TEMPLATES`: compiled templates in the executable, their sources in a clone."""
    compiled = path(COMPILED, f"{folder}.zip")
    return ModuleLoader(compiled) if compiled.exists() else FileSystemLoader(path(folder))


# What this program is made of: the executable carries a list of its parts and their licences.

_NAMED = ("sanic", "peewee", "huey", "aiosmtpd", "msgspec", "python-liquid", "apsw", "jinja2", "pyjwt", "idna")


def components() -> dict[str, str]:
    """Return name and version of what is inside; run from the sources, of what matters most."""

    first = {"python": platform.python_version(), "sqlite": apsw.sqlite_lib_version()}
    try:
        return {**json.loads(path("components.json").read_text(encoding="utf-8")), **first}
    except FileNotFoundError:
        return {**first, **{name: metadata.version(name) for name in _NAMED}}


def licences() -> str:
    """Return the licences of what is inside. Raises Refused where nothing is: packages carry their own."""
    try:
        return path("licences.txt").read_text(encoding="utf-8")
    except FileNotFoundError:
        raise Refused("the packages that this program runs on carry their licences themselves") from None
