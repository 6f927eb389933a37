"""The notice of a newer version: the URL in the setting `updates.url` is read once a day, if there is one.

The request reveals nothing about the installation. The response is the JSON of a latest release as GitHub and Forgejo
return it (docs.github.com/rest/releases: GET /repos/OWNER/REPO/releases/latest); only `tag_name` and `html_url` are
used. It is stored as the setting `newest_release`, which `campanero doctor` reads, too.
"""

import asyncio
import json
import logging
import re
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from appliance import VERSION
from appliance.core import clock
from appliance.sending.delivery import safe_http
from appliance.settings import config
from appliance.storage import transactions
from appliance.storage.database import fetch_one, run
from appliance.storage.transactions import require_write_transaction

log = logging.getLogger("campanero.updates")
_CHECK_INTERVAL_MS = clock.DAY_MS
_MAX_BYTES = 1_000_000
_MAX_URL_CHARACTERS = 2_000
_VERSION = re.compile(r"v?(\d{1,9}(?:\.\d{1,9}){0,3})")
_ROW = "newest_release"


class _Release(msgspec.Struct):
    tag_name: str
    html_url: str


class NewVersion(NamedTuple):
    """A version that is newer than this one, and the page that describes it."""

    version: str
    url: str


def check_if_due() -> None:
    """Read `updates.url` and store the newest release, unless that was tried in the last day. Waits for the server.

    A failure is logged, and the next attempt is made after a day.
    """
    url = config.current().updates.url
    if not url or not _is_due():
        return
    release = None
    try:
        response = asyncio.run(safe_http.get(url, schemes=("https", "http"), max_bytes=_MAX_BYTES))
        release = msgspec.json.decode(response.body, type=_Release) if response.status == 200 else None
    except (safe_http.RequestFailed, msgspec.MsgspecError, UnicodeDecodeError) as error:
        log.info("updates: %s", error)
    if release is None or _parse(release.tag_name) is None or not _is_page(release.html_url):
        log.warning("updates: no version found at updates.url")
        release = None
    transactions.write(_store, release)


def find_new_version() -> NewVersion | None:
    """Return the newest known version if it is newer than this one, else None; also None if `updates.url` is empty."""
    row = fetch_one("SELECT value FROM setting WHERE name = ?", (_ROW,)) if config.current().updates.url else None
    if row is None:
        return None
    release = msgspec.json.decode(row[0], type=_Release | None)
    version = _parse(release.tag_name) if release is not None else None
    if release is None or version is None or version <= (_parse(VERSION) or ()):
        return None
    return NewVersion(release.tag_name.removeprefix("v"), release.html_url)


def _is_due() -> bool:
    row = fetch_one("SELECT updated_at FROM setting WHERE name = ?", (_ROW,))
    return row is None or abs(clock.now_ms() - row[0]) >= _CHECK_INTERVAL_MS


def _is_page(url: str) -> bool:
    """Return whether a text is an https URL, because the server of `updates.url` may send anything."""
    try:
        return urlsplit(url).scheme == "https" and len(url) <= _MAX_URL_CHARACTERS
    except ValueError:
        return False


def _parse(version: str) -> tuple[int, ...] | None:
    """Return the numbers of a version, or None for any other text, such as a preview (`v0.2.0-rc1`)."""
    match = _VERSION.fullmatch(version)
    return tuple(int(number) for number in match[1].split(".")) if match else None


def _store(release: _Release | None) -> None:
    """Store a release. After a failure (None), only the time is stored, and the former release is kept."""
    require_write_transaction()
    value = json.dumps(msgspec.to_builtins(release))
    run(
        "INSERT INTO setting (name, value, updated_at) VALUES (?1, ?2, ?3) ON CONFLICT (name) DO UPDATE "
        "SET updated_at = ?3, value = CASE WHEN ?2 = 'null' THEN value ELSE ?2 END",
        (_ROW, value, clock.now_ms()),
    )
