"""The profiles of the commands for scripts: by name, the address of an installation and an API key for it.

They are stored in a file that only its owner can read, written by `campanero login`.
"""

import fcntl
import ipaddress
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from appliance.remote import output
from appliance.remote.errors import NOT_ALLOWED, CommandError, UsageError

DEFAULT_NAME = "default"
URL_VARIABLE, KEY_VARIABLE, PROFILE_VARIABLE = "CAMPANERO_URL", "CAMPANERO_KEY", "CAMPANERO_PROFILE"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class Profile(NamedTuple):
    """The URL and API key for requests; `account` is the name of the account when the user signed in."""

    url: str
    key: str
    account: str = ""

    def __repr__(self) -> str:
        return f"Profile({self.url!r})"


def parse_url(text: str) -> str:
    """Return the address of a service without trailing slash and API path. Raises UsageError."""
    url = text.strip().rstrip("/")
    for suffix in ("/v1/my", "/v1"):
        url = url.removesuffix(suffix)
    try:
        parts = urlsplit(url)
        has_host = parts.hostname is not None and (parts.port is None or parts.port > 0)
    except ValueError:
        has_host = False
    if not has_host or parts.scheme not in ("http", "https") or not url.isprintable() or " " in url:
        raise UsageError(f"{text} is not an address such as https://mail.example.com")
    if parts.username is not None or parts.query or parts.fragment:
        raise UsageError("the address must have no user name, query or fragment")
    return url


def parse_name(text: str) -> str:
    """Return the name of a profile if it is valid. Raises UsageError."""
    if not _NAME.fullmatch(text):
        raise UsageError("a profile's name has up to 64 letters, digits, dots, hyphens and underscores")
    return text


def warn_without_encryption(url: str) -> None:
    """Print a warning if requests, and the key in them, would cross a network unencrypted."""
    parts = urlsplit(url)
    if parts.scheme == "http" and not _is_loopback(parts.hostname or ""):
        output.print_note(f"campanero: warning: {url} is not encrypted: others on the way can read the key")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False  # a name may resolve to any address


def file_path() -> Path:
    """Return the path of the profiles file, below `XDG_CONFIG_HOME` (XDG Base Directory Specification)."""
    home = Path(os.environ.get("XDG_CONFIG_HOME") or "relative")
    # The specification says that relative paths must be ignored.
    base = home if home.is_absolute() else Path.home() / ".config"
    return base / "campanero" / "profiles.json"


def load() -> dict[str, Profile]:
    """Return the profiles by name; empty if there is no file. Raises CommandError for a damaged file.

    Prints a warning if other users can read the file.
    """
    path = file_path()
    try:
        with path.open(encoding="utf-8") as file:
            is_private = os.fstat(file.fileno()).st_mode & 0o077 == 0
            stored = json.load(file)
        profiles = {
            str(name): Profile(str(entry["url"]), str(entry["key"]), str(entry.get("account", "")))
            for name, entry in stored["profiles"].items()
        }
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CommandError(f"{path} is damaged: delete it and sign in again") from None
    if not is_private:
        output.print_note(f"campanero: warning: other users can read the keys in {path}: chmod 600 {path}")
    return profiles


@contextmanager
def change() -> Iterator[dict[str, Profile]]:
    """Yield the profiles to be changed, and store them at the end; concurrent changes wait for a lock.

    Raises CommandError for a damaged file. If the block raises, nothing is stored.
    """
    path = file_path()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        profiles = load()
        yield profiles
        _store(path, profiles)
    finally:
        os.close(directory)


def _store(path: Path, profiles: dict[str, Profile]) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        # The file is new, so that it has its mode from the first byte and no link is followed.
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:  # noqa: PTH123 - Path.open takes no descriptor
            json.dump({"profiles": {name: profile._asdict() for name, profile in profiles.items()}}, file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def choose(name: str | None) -> Profile:
    """Return the profile of a command.

    In this order: the profile that `name` (the option) names, `CAMPANERO_URL` with `CAMPANERO_KEY`, the profile that
    `CAMPANERO_PROFILE` names, and `default`. Raises CommandError with the exit code NOT_ALLOWED if there is none.
    """
    url, key = os.environ.get(URL_VARIABLE), os.environ.get(KEY_VARIABLE)
    if name is None and (url or key):
        if not (url and key):
            # A key alone would be sent to the service of a profile, which need not be the service of the key.
            raise CommandError(f"set both {URL_VARIABLE} and {KEY_VARIABLE}, or neither", NOT_ALLOWED)
        url = parse_url(url)
        warn_without_encryption(url)
        return Profile(url, key)
    chosen = parse_name(name or os.environ.get(PROFILE_VARIABLE) or DEFAULT_NAME)
    profile = load().get(chosen)
    if profile is None:
        where = "" if chosen == DEFAULT_NAME else f" --profile {chosen}"
        raise CommandError(f"not signed in: campanero login URL{where}", NOT_ALLOWED)
    return profile
