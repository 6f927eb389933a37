"""The recipients' own servers: the mail servers of a domain in their order, encrypted where they offer it."""

import ipaddress
import random
import ssl
from functools import cache
from itertools import groupby
from typing import NamedTuple

from appliance.core.errors import DeliveryError, Permanent, Temporary, Unreachable
from appliance.sending.delivery import greeting, routing
from appliance.sending.delivery.dialogue import Dialogue
from appliance.sending.delivery.offered import NotEncrypted
from appliance.sending.delivery.send import Server
from appliance.settings import config
from appliance.settings.config import seconds

# RFC 5321, 5.1 wants at least two tried; many more would keep one message busy for an hour
_MAX_ADDRESSES = 6


class Way(NamedTuple):
    """The servers that take a domain's mail; `proven` says that only an encrypted conversation with one that shows a
    certificate of its name will do.
    """

    domain: str
    hosts: tuple[tuple[int, str], ...]
    group: str
    proven: bool = False

    @property
    def key(self) -> str:
        """The name under which conversations are shared: the same servers, and no less of a proof."""
        return f"{'proven ' if self.proven else ''}{' '.join(f'{one}:{name}' for one, name in self.hosts)}"


def name() -> str:
    """Return the name we greet with."""
    here = config.current()
    found = here.email.direct.helo or config.host(here)
    try:
        literal = ipaddress.ip_address(found)
    except ValueError:
        return found
    return f"[{'IPv6:' if literal.version == 6 else ''}{literal}]"


async def connect(way: Way) -> Dialogue:
    """Open a conversation with the first server that takes it, all of them tried (D24).

    Raises Permanent if none of them can ever be reached, Temporary if one spoke and would not, Unreachable if none did.
    """
    tried: list[str] = []
    spoken: DeliveryError | None = None
    places, is_private = await _places(way, tried)
    for host, address in places:
        try:
            return await _open(way, host, address)
        except Unreachable as error:
            spoken = error if error.smtp is not None else spoken
            tried.append(error.text)
        except DeliveryError as error:
            spoken = error
            tried.append(error.text)
    words = "; ".join(dict.fromkeys(tried))[:900] or f"{way.domain} has no mail server that can be found"
    if way.proven:
        words = f"{way.domain} takes mail only over proven encryption (MTA-STS): {words}"
    if spoken is not None:
        raise Temporary(words, spoken.smtp, spoken.enhanced)
    if places:
        raise Unreachable(words)
    if is_private:
        raise Permanent(words, None, "5.4.4")
    raise Temporary(words, None, "4.4.4")


async def _places(way: Way, tried: list[str]) -> tuple[list[tuple[str, str]], bool]:
    """Return (server, address) in the order to try them: the best first, equals in any order.

    And whether there is none because all of them are in private networks.
    """
    found: list[tuple[str, str]] = []
    looked: list[routing.Addresses] = []
    for _, group in groupby(way.hosts, key=lambda host: host[0]):
        equals = list(group)
        random.shuffle(equals)
        for _, host in equals[:_MAX_ADDRESSES]:
            if len(found) >= _MAX_ADDRESSES or len(looked) >= 2 * _MAX_ADDRESSES:
                break
            looked.append(there := await routing.located(host))
            if not there.found:
                tried.append(there.words or f"there is no {host}")
            found += [(host, address) for address in random.sample(there.found, len(there.found))]
    return found[:_MAX_ADDRESSES], bool(looked) and all(one.is_private for one in looked)


async def _open(way: Way, host: str, address: str) -> Dialogue:
    server = _server(host, address, "starttls" if way.proven else "offered")
    if way.proven:
        return await greeting.connect(server, _proving)
    try:
        return await greeting.connect(server, _trusting)
    except NotEncrypted:
        # What it cannot do it will not do at the second time either; a stranger who listens is no worse than before
        return await greeting.connect(server._replace(tls="none"))


def _server(host: str, address: str, tls: str) -> Server:
    email = config.current().email
    return Server(
        host, email.direct.port, tls, helo=name(), connect_timeout=seconds(email.connect_timeout),
        command_timeout=seconds(email.command_timeout), reply_timeout=seconds(email.reply_timeout),
        most_messages=email.messages_per_connection, address=address,
    )  # fmt: skip


@cache
def _trusting() -> ssl.SSLContext:
    """Encrypt for whoever answers: servers of mail show certificates of any name, and without it all is in clear."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    return context


@cache
def _proving() -> ssl.SSLContext:
    return ssl.create_default_context()
