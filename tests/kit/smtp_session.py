"""One SMTP session, strict: a line must end in CRLF, and every phase is recorded before its reply."""

import asyncio
import base64
import binascii
import re
import socket
import ssl
import struct
import time
from typing import TYPE_CHECKING

from tests.kit.smtp_message import Message, Phase
from tests.kit.smtp_rules import Rule

if TYPE_CHECKING:
    from tests.kit.smtp import SmtpServer

_PATH = re.compile(r"(?i)(FROM|TO):\s?<([^<>]*)>(.*)")
MAX_LINE_BYTES = 2048  # RFC 5321 asks for 512, extensions add to it


class Closed(Exception):
    """The session is over, closed by either side or by a rule."""


class Session:
    """Serves one client until it quits or a rule ends the session."""

    def __init__(self, server: "SmtpServer", number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self.server, self.number, self.reader, self.writer = server, number, reader, writer
        self.greeted = False
        self.tls = writer.get_extra_info("ssl_object") is not None
        self.user: str | None = None
        self._reset()

    def _reset(self) -> None:
        self.mail_from: str | None = None
        self.mail_params: list[str] = []
        self.rcpt_to: list[str] = []
        self.replied_at = 0.0

    async def run(self) -> None:
        """Serve the session and return when it is over."""
        try:
            await self._reply("connect", "", "220 kit.example ESMTP")
            while True:
                await self._command((await self._line()).decode("utf-8", "surrogateescape"))
        except (Closed, ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            return

    async def _line(self) -> bytes:
        line = await self.reader.readuntil(b"\r\n")
        return line[:-2]

    async def _command(self, line: str) -> None:
        if len(line) > MAX_LINE_BYTES:
            await self._send_lines("500 5.5.6 Line too long")
            return
        verb, _, rest = line.partition(" ")
        handler = {
            "EHLO": self._ehlo, "HELO": self._helo, "STARTTLS": self._starttls, "AUTH": self._auth,
            "MAIL": self._mail, "RCPT": self._rcpt, "DATA": self._data, "RSET": self._rset,
            "NOOP": self._noop, "VRFY": self._vrfy, "QUIT": self._quit,
        }.get(verb.upper())  # fmt: skip
        if handler is None:
            await self._send_lines("500 5.5.1 Unknown command")
        else:
            await handler(line, rest)

    # -- replies --------------------------------------------------------------------------------------------------

    async def _send_lines(self, *lines: str) -> None:
        self.replied_at = time.time()  # before the write: a client may have read the reply before this thread goes on
        await self._write("".join(f"{line}\r\n" for line in lines).encode("utf-8"))

    async def _write(self, data: bytes) -> None:
        size = self.server.piece or len(data)
        for start in range(0, len(data), size):
            self.writer.write(data[start : start + size])
            await self.writer.drain()
            if self.server.piece:
                await asyncio.sleep(0)

    async def _reply(self, phase: str, line: str, *good: str, rcpt: str | None = None) -> bool:
        """Record the phase, apply a rule if one matches, and reply; return False if the rule rejected the command."""
        addresses = [rcpt] if rcpt is not None else list(self.rcpt_to)
        self._record(phase, line, addresses)
        # At MAIL there is no recipient yet, so rules match the sender
        rule = await self._apply_rule(phase, [self.mail_from or ""] if phase == "mail" else addresses)
        if rule is not None and rule.code is not None:
            await self._reject(rule.code, rule.text)
            return False
        if rule is not None and rule.raw is not None:
            await self._write(rule.raw)
        else:
            await self._send_lines(*good)
        return True

    async def _apply_rule(self, phase: str, addresses: list[str], message: Message | None = None) -> Rule | None:
        rule = self.server.rules.take(phase, addresses)
        if rule is not None:
            if rule.store_first and message is not None:
                self.server.store(message)
            if rule.delay:
                await asyncio.sleep(rule.delay)
            if rule.gate:
                await rule.gate.wait_until_open()
            if rule.drop:
                raise Closed
        return rule

    def _record(self, phase: str, line: str, addresses: list[str], size: int | None = None) -> None:
        entry = Phase(time.time(), self.number, phase, line, self.mail_from, tuple(addresses), size)
        self.server.record_phase(entry)

    async def _reject(self, code: int, text: str) -> None:
        lines = text.split("\n")
        await self._send_lines(*(f"{code}-{part}" for part in lines[:-1]), f"{code} {lines[-1]}")
        if code == 421:
            raise Closed

    # -- commands -------------------------------------------------------------------------------------------------

    async def _ehlo(self, line: str, _rest: str) -> None:
        self._reset()
        offers = ["kit.example", *self.server.ehlo_lines(tls=self.tls)]
        lines = [f"250-{offer}" for offer in offers[:-1]] + [f"250 {offers[-1]}"]
        self.greeted = await self._reply("ehlo", line, *lines)

    async def _helo(self, line: str, _rest: str) -> None:
        self._reset()
        self.greeted = await self._reply("ehlo", line, "250 kit.example")

    async def _starttls(self, line: str, _rest: str) -> None:
        context = self.server.tls_context
        if context is None or self.tls:
            await self._send_lines("502 5.5.1 Not offered")
        elif await self._reply("starttls", line, "220 2.0.0 Go ahead"):
            # What was sent before the handshake must not count after it (CVE-2011-0411).
            self._buffer().clear()
            await self.writer.start_tls(context)
            self.tls, self.greeted = True, False
            self._reset()

    async def _auth(self, line: str, rest: str) -> None:
        users = self.server.users
        mechanism, _, initial = rest.partition(" ")
        if mechanism.upper() == "XOAUTH2" and self.server.accepts_token is not None:
            await self._auth_with_token(line, self._decode(initial))
            return
        if users is None or mechanism.upper() not in ("PLAIN", "LOGIN"):
            await self._send_lines("504 5.5.4 Not offered")
            return
        try:
            if mechanism.upper() == "PLAIN":
                _, name, password = ((initial and self._decode(initial)) or await self._prompt("")).split("\0")
            else:
                name = (initial and self._decode(initial)) or await self._prompt("VXNlcm5hbWU6")
                password = await self._prompt("UGFzc3dvcmQ6")
        except (binascii.Error, ValueError):
            await self._send_lines("501 5.5.2 Cannot decode")
            return
        is_valid = users.get(name) == password
        good = "235 2.7.0 Welcome" if is_valid else "535 5.7.8 Wrong user or password"
        if await self._reply("auth", line, good) and is_valid:
            self.user = name

    async def _auth_with_token(self, line: str, initial: str) -> None:
        """Check an access token; an error comes in a challenge, as from Google, and is answered with an empty line."""
        assert self.server.accepts_token is not None
        match = re.fullmatch(r"user=([^\x01]*)\x01auth=Bearer ([^\x01]+)\x01\x01", initial)
        is_valid = match is not None and self.server.accepts_token(match[1], match[2])
        if not is_valid:
            details = b'{"status":"400","schemes":"Bearer","scope":"https://mail.google.com/"}'
            await self._send_lines(f"334 {base64.b64encode(details).decode()}")
            assert await self._line() == b""
        good = "235 2.7.0 Accepted" if is_valid else "535 5.7.8 Username and Password not accepted."
        if await self._reply("auth", line, good) and is_valid and match is not None:
            self.user = match[1]

    async def _prompt(self, prompt: str) -> str:
        await self._send_lines(f"334 {prompt}")
        return self._decode((await self._line()).decode("ascii", "replace"))

    @staticmethod
    def _decode(text: str) -> str:
        return base64.b64decode(text, validate=True).decode("utf-8")

    async def _mail(self, line: str, rest: str) -> None:
        path = _PATH.fullmatch(rest)
        if not self.greeted or self.mail_from is not None:
            await self._send_lines("503 5.5.1 Not now")
        elif self.user is None and (self.server.users is not None or self.server.accepts_token is not None):
            await self._send_lines("530 5.7.0 Log in first")
        elif path is None or path[1].upper() != "FROM":
            await self._send_lines("501 5.5.4 MAIL FROM:<address>")
        else:
            params = path[3].split()
            rejection = self.server.reject_parameters(path[2], params)
            if rejection:
                self._record("mail", line, [])
                await self._send_lines(rejection)
                return
            self.mail_from, self.mail_params = path[2], params
            if not await self._reply("mail", line, "250 2.1.0 Ok"):
                self._reset()

    async def _rcpt(self, line: str, rest: str) -> None:
        path = _PATH.fullmatch(rest)
        if self.mail_from is None:
            await self._send_lines("503 5.5.1 MAIL first")
        elif path is None or path[1].upper() != "TO" or not path[2]:
            await self._send_lines("501 5.5.4 RCPT TO:<address>")
        elif not path[2].isascii() and "SMTPUTF8" not in [p.upper() for p in self.mail_params]:
            await self._send_lines("553 5.6.7 Address needs SMTPUTF8")
        elif await self._reply("rcpt", line, "250 2.1.5 Ok", rcpt=path[2]):
            self.rcpt_to.append(path[2])

    async def _data(self, line: str, _rest: str) -> None:
        if not self.rcpt_to:
            await self._send_lines("503 5.5.1 No recipient")
            return
        if not await self._reply("data", line, "354 End with a dot"):
            self._reset()
            return
        invited_at = self.replied_at
        first = await self.reader.readexactly(1)
        begun_at = time.time()
        self._buffer()[:0] = first
        raw = await self._body()
        message = Message(
            self.mail_from or "",
            list(self.rcpt_to),
            raw,
            time.time(),
            self.number,
            self.mail_params,
            self.tls,
            self.user,
            invited_at,
            begun_at,
        )
        await self._finish(message)
        self._reset()

    async def _body(self) -> bytes:
        rule = self.server.rules.take("content", self.rcpt_to)
        if rule is not None and rule.reset_at is not None:
            await self._reset_after(rule.reset_at)
        # The end is CRLF.CRLF, whose first CRLF may be that of the DATA line: put that one back.
        self._buffer()[:0] = b"\r\n"
        stuffed = await self.reader.readuntil(b"\r\n.\r\n")
        return stuffed[:-3].replace(b"\r\n.", b"\r\n")[2:]

    async def _reset_after(self, count: int) -> None:
        await self.reader.readexactly(count)
        connection = self.writer.get_extra_info("socket")
        # With a linger time of 0, closing sends RST
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()
        raise Closed

    def _buffer(self) -> bytearray:
        return self.reader._buffer  # type: ignore[attr-defined,no-any-return]  # missing in the type stubs

    async def _finish(self, message: Message) -> None:
        """Accept or reject a complete message; it is stored before the 250 reply."""
        size = len(message.raw)
        self._record("body", ".", message.rcpt_to, size)
        rule = await self._apply_rule("body", message.rcpt_to, message)
        if rule is not None and rule.code is not None:
            await self._reject(rule.code, rule.text)
        elif self.server.size_limit and size > self.server.size_limit:
            await self._send_lines("552 5.3.4 Message too big")
        else:
            if rule is None or not rule.store_first:
                self.server.store(message)
            await self._write(b"250 2.0.0 Ok: stored\r\n" if rule is None or rule.raw is None else rule.raw)

    async def _rset(self, _line: str, _rest: str) -> None:
        self._reset()
        await self._send_lines("250 2.0.0 Ok")

    async def _noop(self, _line: str, _rest: str) -> None:
        await self._send_lines("250 2.0.0 Ok")

    async def _vrfy(self, _line: str, _rest: str) -> None:
        await self._send_lines("252 2.1.5 Send some mail")

    async def _quit(self, _line: str, _rest: str) -> None:
        await self._send_lines("221 2.0.0 Bye")
        raise Closed
