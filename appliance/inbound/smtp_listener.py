"""Listens for mail that comes back, on a thread and a loop of its own: whatever floods it, pages and API go on."""

import asyncio
import logging
import re
import socket
import ssl
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from email.errors import MessageError
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from aiosmtpd.smtp import SMTP, Envelope

from appliance.core import certificates, client_ip, tokens
from appliance.core.errors import Unavailable
from appliance.inbound.feedback import mail
from appliance.inbound.feedback.record import Fact
from appliance.sending.messages import links
from appliance.settings import config
from appliance.settings.schema import Config
from appliance.storage import work
from appliance.storage.open import fetch_one
from appliance.tracking import unsubscribes

# Who brings mail at the same time: so many in all, and so many of one address.

MAX_CONNECTIONS, MAX_OF_ONE = 100, 5


class Crowd:
    """Who is connected, in all and from each address."""

    def __init__(self) -> None:
        self._of: Counter[str] = Counter()

    def enter(self, address: str) -> bool:
        """Count one more; False where that is one too many."""
        if self._of.total() >= MAX_CONNECTIONS or self._of[address] >= MAX_OF_ONE:
            return False
        self._of[address] += 1
        return True

    def leave(self, address: str) -> None:
        """Count one less."""
        self._of[address] -= 1
        if self._of[address] <= 0:
            del self._of[address]

    @property
    def size(self) -> int:
        """How many are connected."""
        return self._of.total()


log = logging.getLogger("campanero.inbound")


class Listener:
    """The listener of one process; does nothing where none is configured."""

    def __init__(self, here: Config) -> None:
        self._here = here
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._ready = threading.Event()
        self._socket: socket.socket | None = None
        self.certificate: certificates.Shown | None = None
        self.crowd = Crowd()

    def bind(self) -> None:
        """Take the address, before anything else begins. Raises OSError if it or the certificate is not to be had."""
        if not self._here.inbound.listen:
            return
        host, _, port = self._here.inbound.listen.rpartition(":")
        host = host.strip("[]")
        self.certificate = _certificate(self._here)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._socket = socket.create_server((host, int(port)), family=family, backlog=200)
        except OSError as error:
            raise OSError(error.errno, f"inbound.listen: {self._here.inbound.listen}: {error.strerror}") from None

    def start(self) -> None:
        """Begin to listen; returns when mail is taken."""
        if self._socket is None:
            return
        self._thread = threading.Thread(target=self._run, name="inbound", daemon=True)
        self._thread.start()
        self._ready.wait()

    def stop(self) -> None:
        """Take no more mail; what was not answered will be brought again."""
        if self._thread is None or self._loop is None or self._stopping is None:
            return
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(5.0)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        pass
        pass

        assert self._socket is not None
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        name = self._here.email.direct.helo or urlsplit(config.base_url(self._here)).hostname or "localhost"
        desk, tls = Desk(), self.certificate.context if self.certificate is not None else None
        server = await self._loop.create_server(
            lambda: Session(desk, self.crowd, name, tls), sock=self._socket, backlog=200
        )
        log.info("mail that comes back is taken on %s", self._here.inbound.listen)
        self._ready.set()
        await self._stopping.wait()
        server.close()
        desk.close()


def _certificate(here: Config) -> certificates.Shown | None:
    """Return what conversations are encrypted with; None without a certificate. Raises OSError for a bad one."""
    if not here.inbound.tls_certificate:
        return None
    return certificates.Shown("inbound.tls_certificate", here.inbound.tls_certificate, here.inbound.tls_key, web=False)


# One conversation of somebody who brings mail: the library's SMTP, with bounds on everything that can be too much.
#
# Lines end in CRLF here and in nothing else: where two programs disagree about the end of a line, a second message
# can be hidden in the first (CVE-2023-51764, CVE-2024-27305).

MAX_MESSAGE_BYTES = 1024 * 1024
MAX_RECIPIENTS = 10
IDLE_SECONDS = 60.0
# Who goes on after that has not come to deliver reports
_MAX_BYTES = 64 * MAX_MESSAGE_BYTES
_MAX_UNREAD = 3 * MAX_MESSAGE_BYTES
_MAX_LINE_BYTES = 65_536
# Of one message; nobody's report has more, and each costs time
_MAX_LINES = 40_000
_BARE = re.compile(rb"(?<!\r)\n|\r(?!\n)")
_CALLS = {"MAIL": 500, "RCPT": 1_000, "DATA": 500, "RSET": 500, "NOOP": 100, "*": 30}


class Session(SMTP):
    """The server's side of one conversation."""

    # Mail that comes back may have longer lines than mail may
    line_length_limit = _MAX_LINE_BYTES

    def __init__(self, handler: Any, crowd: Crowd, hostname: str, tls: ssl.SSLContext | None) -> None:
        super().__init__(
            handler, data_size_limit=MAX_MESSAGE_BYTES, enable_SMTPUTF8=True, hostname=hostname,
            ident="ESMTP Campanero", tls_context=tls, timeout=IDLE_SECONDS, auth_exclude_mechanism=["LOGIN", "PLAIN"],
            command_call_limit=_CALLS, loop=asyncio.get_running_loop(),
        )  # fmt: skip
        self._crowd = crowd
        self._address: str | None = None
        self._turned_away = False
        self._taken = self._unread = self._lines = 0
        self._in_message = False
        self._last = b""  # byte of what came before

    def connection_made(self, transport: Any) -> None:
        """Greet, or turn away who is one too many; called once more when the conversation is encrypted."""
        if self._address is None:
            # Of IPv6 one line has more addresses than there are places
            address = client_ip.household(str((transport.get_extra_info("peername") or ("?",))[0]))
            if not self._crowd.enter(address):
                self._turned_away = True
                transport.write(b"421 4.7.0 Too many connections, come again later\r\n")
                transport.close()
                return
            self._address = address
        super().connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        """Make room for the next."""
        if self._address is not None:
            self._crowd.leave(self._address)
            self._address = None
        if not self._turned_away:
            super().connection_lost(error)

    def eof_received(self) -> bool | None:
        """Nobody who was turned away is waited for."""
        return False if self._turned_away else super().eof_received()

    def data_received(self, data: bytes) -> None:
        """Take some bytes, within bounds; commands end in CRLF."""
        if self._turned_away:
            return
        self._taken += len(data)
        self._unread += len(data)
        self._lines += data.count(b"\n")
        if self._taken > _MAX_BYTES or self._unread > _MAX_UNREAD:
            self._end(b"421 4.7.0 That is too much\r\n")
        elif self._in_message and self._lines > _MAX_LINES:
            self._end(b"552 5.3.4 That is too much\r\n")
        elif not self._in_message and _is_bare(data, self._last):
            self._end(b"554 5.5.2 Lines end in CRLF\r\n")
        else:
            self._last = data[-1:]
            super().data_received(data)

    def _end(self, words: bytes) -> None:
        if self.transport is not None:
            transport: Any = self.transport
            transport.write(words)
            transport.close()

    async def smtp_DATA(self, arg: str) -> None:
        """Take a message; what is too much, is counted from here."""
        self._unread = self._lines = 0
        self._in_message = True
        try:
            await super().smtp_DATA(arg)
        finally:
            self._unread, self._in_message = 0, False

    async def smtp_AUTH(self, arg: str) -> None:
        """Refuse: nobody has an account here."""
        await self.push("502 5.5.1 Nobody logs in here")

    async def smtp_VRFY(self, arg: str) -> None:
        """Refuse: who is written to is nobody's business."""
        await self.push("252 2.5.1 Send and see")


def _is_bare(data: bytes, last: bytes) -> bool:
    """Return whether a piece of commands holds a CR or LF by itself; a CR at its end may still get its LF."""
    return _BARE.search((last + data if last == b"\r" else data).removesuffix(b"\r")) is not None


def is_bare(content: bytes) -> bool:
    """Return whether a message holds a CR or LF by itself."""
    return _BARE.search(content) is not None


# Decides what is taken: mail to our own return paths, for feedback, and for leaving. Nothing is ever passed on.

_LEAVE = re.compile(r"unsubscribe\+([0-9a-f]{20,80})", re.IGNORECASE)
_FEEDBACK = ("fbl", "feedback")
_REFUSED = "550 5.7.1 Only reports about our own mail are taken here; nothing is relayed"


class Target(NamedTuple):
    """Where a mail came to: the return path of a message, the address of those who leave, or the one for feedback."""

    message_id: int | None = None
    leaves: str | None = None


class Desk:
    """The handler of all conversations."""

    def __init__(self) -> None:
        # One at a time, beside the loop: a mail that takes long to read keeps nobody from being turned away
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="inbound-reader")

    def close(self) -> None:
        """Read no more."""
        self._reader.shutdown(wait=False, cancel_futures=True)

    async def handle_EHLO(
        self, server: Session, session: Any, envelope: Envelope, hostname: str, responses: list[str]
    ) -> list[str]:
        """Greet back, with no offer to log in."""
        session.host_name = hostname
        return [line for line in responses if not line[4:].upper().startswith("AUTH")]

    async def handle_RCPT(
        self, server: Session, session: Any, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        """Take a recipient that is ours."""
        if len(envelope.rcpt_tos) >= MAX_RECIPIENTS:
            return "452 4.5.3 Too many recipients"
        try:
            target = await self._target(address)
        except Unavailable:
            return "451 4.3.0 Try again later"
        if target is None:
            return _REFUSED
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 OK"

    async def _target(self, address: str) -> Target | None:
        local, _, host = address.rpartition("@")
        above = host.lower().removeprefix("bounce.")
        if not local or above == host.lower():
            return None
        number = links.returned_to(local)
        if number is not None:
            return Target(number)
        leaves = _LEAVE.fullmatch(local)
        if leaves:
            return Target(None, leaves[1]) if tokens.read_hex(links.LEAVE, leaves[1], 16) is not None else None
        return Target() if local.lower() in _FEEDBACK and await work.call(_is_ours, above) else None

    async def handle_DATA(self, server: Session, session: Any, envelope: Envelope) -> str:
        """Reply to a message once what it tells is on disk."""
        content = envelope.original_content or b""
        if is_bare(content):
            return "554 5.6.0 A message holds no CR and no LF by itself"
        try:
            targets = [target for address in envelope.rcpt_tos if (target := await self._target(address)) is not None]
            told: list[list[Fact]] = []
            for target in targets:
                if target.leaves is None:
                    told += await self._read(content, target.message_id)
            leaving = [target.leaves for target in targets if target.leaves is not None]
            changed = await work.commit(_write, told, leaving)
        except Unavailable as error:
            log.info("told to come again: %s", error.message)
            return "451 4.3.0 This cannot be written now, try again later"
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError, MessageError) as error:
            log.warning("a mail that came back cannot be read: %r", error)
            return "554 5.6.0 This cannot be read"
        log.info("a mail of %s bytes came back and told of %s things, %s new", len(content), len(told), changed)
        return "250 2.0.0 Noted"

    async def _read(self, content: bytes, message_id: int | None) -> list[list[Fact]]:
        return await asyncio.get_running_loop().run_in_executor(self._reader, mail.facts, content, message_id)

    async def handle_exception(self, error: Exception) -> str:
        """Reply to an unexpected error without details about ourselves."""
        log.error("a conversation failed: %r", error)
        return "451 4.3.0 Something went wrong here"


def _is_ours(domain_name: str) -> bool:
    return fetch_one("SELECT 1 FROM sending_domain WHERE name = ? LIMIT 1", (domain_name,)) is not None


def _write(told: list[list[Fact]], leaving: list[str]) -> int:
    """Write what a mail tells, all of it or nothing; returns how much of it is new."""
    changed = mail.apply(told)
    return changed + sum(unsubscribes.opt_out(token, "mailto") for token in leaving)
