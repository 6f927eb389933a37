"""Stores: places on other machines or disks for copies of the data, by the scheme of their URL.

A new kind of store is a file in this package and a line in `KINDS`. `base.py` has the protocol and its errors.
"""

from collections.abc import Callable
from urllib.parse import SplitResult, urlsplit

from appliance.ops.stores.base import Store, StoreError, Throttle
from appliance.settings.copies import Copies


class UnusableUrl(StoreError):
    """The URL names no store; the message is the reason."""


def _open_directory(url: SplitResult, settings: Copies) -> Store:
    from appliance.ops.stores import directory

    return directory.open_store(url, _throttle(settings))


def _open_s3(url: SplitResult, settings: Copies) -> Store:
    from appliance.ops.stores import s3

    return s3.open_store(url, settings, _throttle(settings))


def _open_sftp(url: SplitResult, settings: Copies) -> Store:
    from appliance.ops.stores import sftp

    return sftp.open_store(url, settings, _throttle(settings))


def _throttle(settings: Copies) -> Throttle:
    return Throttle(settings.megabits_per_second * 125_000)


# The modules are imported when a store of their kind is used, because most installations use one at most.
KINDS: dict[str, Callable[[SplitResult, Copies], Store]] = {
    "s3": _open_s3,
    "sftp": _open_sftp,
    "file": _open_directory,
}


def open_store(url: str, settings: Copies) -> Store:
    """Return the store of a URL: `s3://BUCKET/PREFIX`, `sftp://USER@HOST/PATH` or `file:///PATH`.

    `settings` are the settings of copies, which contain the credentials. The connection is opened at the first use.
    Raises UnusableUrl for an unknown scheme, or for a URL that is incomplete or contains a password.
    """
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises ValueError for a port that is not a number
    except ValueError as error:
        raise UnusableUrl(f"{url} is not a storage URL: {error}") from None
    if parts.scheme not in KINDS:
        schemes = ", ".join(f"{scheme}://" for scheme in KINDS)
        raise UnusableUrl(f"{url} is not a storage URL: it must begin with one of {schemes}")
    if parts.password is not None:
        raise UnusableUrl("a storage URL must not contain a password: it would be visible in logs and on pages")
    if parts.query or parts.fragment:
        raise UnusableUrl(f"{url} is not a storage URL: it must not contain ? or #")
    return KINDS[parts.scheme](parts, settings)


def is_store_url(text: str) -> bool:
    """Return whether a text begins with the scheme of a store."""
    return text.partition("://")[0] in KINDS and "://" in text
