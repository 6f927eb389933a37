"""What this program is made of: the executable carries a list of its parts and their licences."""

import json
import platform
from importlib import metadata

import apsw

from appliance import assets
from appliance.errors import Refused

_NAMED = ("sanic", "peewee", "huey", "aiosmtpd", "msgspec", "python-liquid", "apsw", "jinja2", "pyjwt", "idna")


def components() -> dict[str, str]:
    """Return name and version of what is inside; run from the sources, of what matters most."""

    first = {"python": platform.python_version(), "sqlite": apsw.sqlite_lib_version()}
    try:
        return {**json.loads(assets.path("components.json").read_text(encoding="utf-8")), **first}
    except FileNotFoundError:
        return {**first, **{name: metadata.version(name) for name in _NAMED}}


def licences() -> str:
    """Return the licences of what is inside. Raises Refused where nothing is: packages carry their own."""
    try:
        return assets.path("licences.txt").read_text(encoding="utf-8")
    except FileNotFoundError:
        raise Refused("the packages that this program runs on carry their licences themselves") from None
