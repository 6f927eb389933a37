"""Public addresses of accounts: the base URL of the links, forms and images that recipients of an account get.

An account without one uses the installation's `base_url`. Only operators set it, because a host name decides whose
pages are shown. Every host belongs to one account, even after the account got another address: so links in delivered
mail keep working, and no other account can take them over (docs/decisions.md#38).
"""

import re
import threading
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from appliance.accounts import accounts, audit
from appliance.accounts.audit import Actor
from appliance.core import addresses, clock, crypto
from appliance.core.errors import Invalid
from appliance.core.i18n import gettext
from appliance.settings import config
from appliance.storage.database import rows, scalar
from appliance.storage.models import Account, AccountHost
from appliance.storage.transactions import require_write_transaction

MAX_URL_CHARACTERS = 255
MAX_HOSTS = 50  # for one account, with its former hosts
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_HOST_NAME = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})+")
_NUMBERS = re.compile(r"[0-9.]+")
_HAS_PORT = re.compile(r":[0-9]*\s*\Z")
_PORTS = {"http": 80, "https": 443}
# At an address of an account, this path with a number answers with the MAC of the number, which the health check
# compares: so it knows that the address leads to this installation.
PROOF_PATH = "/.well-known/campanero-address/"
_PROOF_PURPOSE = "address"


def base_url_of(account: Account) -> str:
    """Return the base URL of everything that recipients of an account get, without a final slash."""
    return account.public_url or config.base_url(config.current())


def fetch_base_url(account_id: int) -> str:
    """Return the base URL of everything that recipients of an account get, by the id of the account."""
    url = scalar("SELECT public_url FROM account WHERE id = ?", (account_id,))
    return str(url) if url else config.base_url(config.current())


def set_public_url(account_id: int, text: str, by: Actor) -> Account:
    """Set the public address of an account; an empty text removes it. The former host stays with the account.

    Raises NotFound, and Invalid (`public_url`) for a malformed address, or one whose host belongs to the installation
    or to another account.
    """
    require_write_transaction()
    account = accounts.get(account_id)
    url = _parse(text) if text.strip() else None
    if url == account.public_url:
        return account
    if url is not None:
        host = _host_of(url)
        owner_id = scalar("SELECT account_id FROM account_host WHERE host = ?", (host,))
        if owner_id is None:
            if scalar("SELECT count(*) FROM account_host WHERE account_id = ?", (account_id,)) >= MAX_HOSTS:
                raise _invalid(gettext("The account has too many former addresses. Remove one of them first."))
            AccountHost.create(account=account_id, host=host, created_at=clock.now_ms())
        elif owner_id != account_id:
            raise _invalid(gettext("%(host)s belongs to another account.", host=host))
    account.public_url, account.updated_at = url, clock.now_ms()
    account.save(only=["public_url", "updated_at"])
    audit.record(by, account_id, "account_address", f"account:{account_id}", {"url": url or ""})
    return account


def release_host(account_id: int, host: str, by: Actor) -> None:
    """Remove a former host of an account: links to it stop working, and another account may use it.

    Raises NotFound, and Invalid for a host that the account does not have, or that its address has now.
    """
    require_write_transaction()
    account, host = accounts.get(account_id), host.strip().lower()
    if account.public_url and _host_of(account.public_url) == host:
        raise Invalid({"base": [gettext("%(host)s is the present address of the account.", host=host)]})
    removed = AccountHost.delete().where(AccountHost.account == account_id, AccountHost.host == host).execute()
    if not removed:
        raise Invalid({"base": [gettext("The account has no former address %(host)s.", host=host)]})
    audit.record(by, account_id, "account_address_remove", f"account:{account_id}", {"host": host})


def list_former_hosts(account: Account) -> list[str]:
    """Return the host names of former addresses of an account, which still answer, in alphabetical order."""
    present = _host_of(account.public_url) if account.public_url else ""
    host_rows = rows("SELECT host FROM account_host WHERE account_id = ? ORDER BY host", (account.id,))
    return [host for (host,) in host_rows if host != present]


def prove(number: int) -> str:
    """Return the response of this installation at `PROOF_PATH` for a number below 2^46."""
    return crypto.sign_token(_PROOF_PURPOSE, number)


def _invalid(message: str) -> Invalid:
    return Invalid({"public_url": [message]})


def _host_of(url: str) -> str:
    return urlsplit(url).hostname or ""


def _parse(text: str) -> str:
    """Return a public address in its stored form, such as `https://mail.shop.example`; raises Invalid."""
    try:
        parts = urlsplit(text.strip())
        host, port = (addresses.to_ascii(f"a@{parts.hostname or ''}") or "").partition("@")[2].lower(), parts.port
    except ValueError:  # idna.IDNAError is one
        raise _invalid(_describe_form()) from None
    is_whole = bool(parts.path not in ("", "/") or parts.query or parts.fragment or "@" in parts.netloc)
    if parts.scheme not in _PORTS or is_whole or not _HOST_NAME.fullmatch(host) or _NUMBERS.fullmatch(host):
        raise _invalid(_describe_form())
    base = config.base_url(config.current())
    if parts.scheme == "http" and base.startswith("https://"):
        raise _invalid(gettext("The address must begin with https://, as that of the installation does."))
    if host == config.base_host(config.current()):
        raise _invalid(gettext("%(host)s is the address of the installation.", host=host))
    url = f"{parts.scheme}://{host}{'' if port in (None, _PORTS[parts.scheme]) else f':{port}'}"
    if len(url) > MAX_URL_CHARACTERS:
        raise _invalid(_describe_form())
    return url


def _describe_form() -> str:
    return gettext("Enter an address such as https://mail.shop.example, without a path.")


class PublicHost(NamedTuple):
    """A public host: the account that it belongs to, and the URL with this host, without a final slash."""

    account_id: int
    url: str


def load_hosts() -> dict[str, PublicHost]:
    """Return the accounts of all public hosts, present and former, by host name.

    The host of the installation belongs to no account, whatever is stored.
    """
    sql = "SELECT h.host, h.account_id, a.public_url FROM account_host h JOIN account a ON a.id = h.account_id"
    scheme = urlsplit(config.base_url(config.current())).scheme
    hosts = {
        host: PublicHost(account_id, url if url and _host_of(url) == host else f"{scheme}://{host}")
        for host, account_id, url in rows(sql)
    }
    hosts.pop(config.base_host(config.current()), None)
    return hosts


class HostTable:
    """The public hosts in memory, so that a request for a tracked link needs no query. Any thread may use it."""

    def __init__(self) -> None:
        self._hosts: Mapping[str, PublicHost] = {}
        self._lock = threading.Lock()

    def refresh(self) -> None:
        """Read the hosts from the database."""
        with self._lock:  # A slow read must not replace a later one.
            self._hosts = load_hosts()

    def find(self, host: str | None) -> PublicHost | None:
        """Return the entry of a Host header, or None if it is not the host of an account. The port is ignored."""
        if not self._hosts or not host:
            return None
        name = host.strip().rpartition(":")[0] if _HAS_PORT.search(host) else host.strip()
        return self._hosts.get(name.rstrip(".").lower())

    def list_names(self) -> list[str]:
        """Return the host names in alphabetical order."""
        return sorted(self._hosts)
