"""An SMTP server for tests: strict and scriptable, in its own thread with its own event loop, on loopback.

For example::

    with SmtpServer() as smtp:
        smtp.rules.reject("rcpt", "gone@*", code=550, text="5.1.1 No such user")
        smtp.rules.delay("body", 2, times=1)
        smtp.wait_for(3).messages[0].html()
"""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Self

from tests.kit.certificates import Certificate, self_signed
from tests.kit.smtp_message import Message, Phase
from tests.kit.smtp_rules import Gate, Rule, Rules
from tests.kit.smtp_session import Session

__all__ = ["Gate", "Message", "Phase", "Rule", "Rules", "SmtpServer"]
MAX_MESSAGE_BYTES = 64 * 1024 * 1024


class SmtpServer:
    """An SMTP server that records all messages; a second `start()` uses the same port and keeps the messages."""

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        pipelining: bool = True,
        eight_bit: bool = True,
        smtputf8: bool = True,
        size_limit: int = 0,
        starttls: bool = False,
        tls: bool = False,
        users: dict[str, str] | None = None,
        accepts_token: Callable[[str, str], bool] | None = None,
        log_file: Path | None = None,
        certificate: Certificate | None = None,
        piece: int = 0,
        window: int = 0,
    ):
        self.host = host
        self.port, self.pipelining, self.eight_bit, self.smtputf8 = port, pipelining, eight_bit, smtputf8
        self.size_limit, self.users, self.implicit_tls = size_limit, users, tls
        # `accepts_token`: the login is XOAUTH2, and the function says whether a user's access token is valid
        self.accepts_token = accepts_token
        # `piece`: replies are sent in pieces of so many bytes (0: whole); `window`: the receive buffer (0: default)
        self.piece, self.window = piece, window
        self.tls_context = (certificate or self_signed()).context() if starttls or tls else None
        self.rules = Rules()
        self.messages: list[Message] = []
        self.log: list[Phase] = []
        self.connections = 0
        self.open_now = 0
        self.open_peak = 0
        self._log_file = log_file.open("a", encoding="utf-8") if log_file else None
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    # -- start and stop -------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start the server and return once it accepts connections."""
        ready = threading.Event()
        failure: list[BaseException] = []

        def run() -> None:
            try:
                asyncio.run(self._serve(ready))
            except BaseException as error:  # raised by start()
                failure.append(error)
                ready.set()

        self._thread = threading.Thread(target=run, name="kit-smtp", daemon=True)
        self._thread.start()
        ready.wait()
        if failure:
            raise failure[0]
        return self

    def stop(self) -> None:
        """Close the port and reset every connection, as a machine that fails."""
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()
            self._thread = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self._log_file:
            self._log_file.close()

    async def _serve(self, ready: threading.Event) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(
            self._serve_connection,
            sock=self._listener(),
            limit=MAX_MESSAGE_BYTES,
            ssl=self.tls_context if self.implicit_tls else None,
        )
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        await self._stopping.wait()
        server.close()
        for writer in list(self._writers):
            writer.transport.abort()

    def _listener(self) -> socket.socket:
        # With the protocol, or asyncio does not recognise TCP and leaves out TCP_NODELAY
        socket_ = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        socket_.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if self.window:
            socket_.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.window)
            # With the large packets of loopback the kernel would buffer megabytes
            socket_.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
        socket_.bind((self.host, self.port))
        return socket_

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open_now += 1
        self.open_peak = max(self.open_peak, self.open_now)
        self._writers.add(writer)
        try:
            await Session(self, self.connections, reader, writer).run()
        finally:
            self.open_now -= 1
            self._writers.discard(writer)
            writer.close()

    # -- called by sessions ---------------------------------------------------------------------------------------

    def ehlo_lines(self, *, tls: bool) -> list[str]:
        """Return the extensions in the EHLO reply."""
        lines = [f"SIZE {self.size_limit}" if self.size_limit else "SIZE", "ENHANCEDSTATUSCODES"]
        lines += ["PIPELINING"] * self.pipelining + ["8BITMIME"] * self.eight_bit + ["SMTPUTF8"] * self.smtputf8
        lines += ["STARTTLS"] * (self.tls_context is not None and not tls)
        lines += ["AUTH PLAIN LOGIN"] * (self.users is not None)
        return lines + ["AUTH LOGIN XOAUTH2"] * (self.accepts_token is not None)

    def reject_parameters(self, address: str, params: list[str]) -> str | None:
        """Return the reply to a MAIL command whose parameters are not offered or too large, else None."""
        names = {name.upper(): value for name, _, value in (p.partition("=") for p in params)}
        offered = {"SIZE", *(["BODY"] * self.eight_bit), *(["SMTPUTF8"] * self.smtputf8), "AUTH"}
        if set(names) - offered:
            return "555 5.5.4 Parameter not offered"
        if self.size_limit and names.get("SIZE", "0").isdigit() and int(names.get("SIZE", "0")) > self.size_limit:
            return "552 5.3.4 Message too big"
        if not address.isascii() and "SMTPUTF8" not in names:
            return "553 5.6.7 Address needs SMTPUTF8"
        return None

    def record_phase(self, entry: Phase) -> None:
        """Record a phase, in the log file too, before its reply."""
        if self._log_file:
            self._log_file.write(json.dumps(asdict(entry)) + "\n")
            self._log_file.flush()
        self.log.append(entry)
        self._notify()

    def store(self, message: Message) -> None:
        """Store a message before the 250 reply."""
        self.messages.append(message)
        self._notify()

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    # -- called by tests ------------------------------------------------------------------------------------------

    def wait_for(self, count: int, timeout: float = 90) -> Self:
        """Wait until at least `count` messages are stored."""
        self.wait_until(lambda: len(self.messages) >= count, f"{count} messages", timeout)
        return self

    def wait_for_phase(self, phase: str, recipient: str | None = None, count: int = 1, timeout: float = 90) -> Self:
        """Wait until a phase was reached `count` times, optionally with this recipient."""
        self.wait_until(lambda: len(self.phases(phase, recipient)) >= count, f"{count} times {phase}", timeout)
        return self

    def wait_until(self, condition: Callable[[], bool], what: str = "it", timeout: float = 90) -> None:
        """Wait until a condition is true; it is checked at every phase and message, and every 0.2 seconds."""
        end = time.monotonic() + timeout
        with self._changed:
            while not condition():
                remaining = end - time.monotonic()
                if remaining <= 0:
                    last = [message.rcpt_to for message in self.messages[-20:]]
                    raise AssertionError(f"waited {timeout} s for {what}; the last taken: {last}")
                self._changed.wait(min(remaining, 0.2))  # a lost connection notifies no one

    def phases(self, phase: str | None = None, recipient: str | None = None) -> list[Phase]:
        """Return the recorded phases, optionally of one kind and with one recipient."""
        return [
            entry
            for entry in list(self.log)
            if (phase is None or entry.phase == phase) and (recipient is None or recipient in entry.rcpt_to)
        ]

    def to(self, recipient: str) -> list[Message]:
        """Return the messages to one recipient."""
        return [message for message in list(self.messages) if recipient in message.rcpt_to]

    def clear(self) -> None:
        """Clear messages, log and rules for the next test."""
        self.rules.clear()
        self.messages.clear()
        self.log.clear()
        self.open_peak = self.open_now
