"""The SMTP dialogue: where the server allows it, a message and the envelope of the next go out together, so that a
message costs one round trip (RFC 2920).

Every failure is named by the phase it happened in. Before the final dot a broken connection means that nothing was
taken; after it, acceptance cannot be known (RFC 1047). Used by one task at a time.
"""

import asyncio
import contextlib
from collections import deque
from typing import Any, cast

from appliance.core.errors import Permanent, Temporary, Uncertain
from appliance.sending.delivery.offered import Lost, NoAnswer, Opened, Refused
from appliance.sending.delivery.replies import Garbled, Replies, Reply, of_message, of_sender
from appliance.sending.delivery.send import Envelope, Server, stuffed, transaction

# A connection to an SMTP server on an event loop: bytes out, replies in by the order of the commands, and no wait
# without an end. What is said over it is `dialogue`'s.

_GOODBYE_SECONDS = 2.0


class Conversation(asyncio.Protocol):
    """One connection to one server, after its greeting (`greeting.connect`)."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.offers: dict[str, str] = {}
        self.messages = 0
        self._transport: asyncio.Transport | None = None
        self._replies = Replies()
        self._waiting: deque[asyncio.Future[Reply]] = deque()
        self._banner: Reply | None = None
        self.lost: Lost | None = None
        self._full = False
        self._drained: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = self._limit = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection over, again after it became encrypted."""
        # Not every loop's transports are of asyncio's classes
        self._transport = cast(asyncio.Transport, transport)
        # From the first byte that the other side does not take: only so is known what left this machine
        self._transport.set_write_buffer_limits(high=0)

    def data_received(self, data: bytes) -> None:
        """Hand replies to whoever waits for them, in the order of the commands."""
        try:
            replies = self._replies.feed(data)
        except Garbled as error:
            self.end(Lost(str(error)))
            return
        for reply in replies:
            while self._waiting and self._waiting[0].done():
                self._waiting.popleft()
            if self._waiting:
                self._banner = self._banner or reply
                self._waiting.popleft().set_result(reply)
            elif self._banner is None and not self.offers:
                self._banner = reply  # which nobody has to ask for
            else:
                # A 421 on its own; anything else would be taken for the answer to what is asked next
                self.end(Lost(f"said without being asked: {reply.words()}"))
                return

    def connection_lost(self, error: Exception | None) -> None:
        """Tell everybody who waits."""
        self.end(Lost(str(error) if error else "the other side closed the connection"))

    def pause_writing(self) -> None:
        """Note that the other side takes no more for now."""
        self._full = True

    def resume_writing(self) -> None:
        """Note that all has left this machine."""
        self._full = False
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def end(self, lost: Lost) -> None:
        """Hang up and tell everybody who waits why; what was said first stays the reason."""
        if self.lost is None:
            self.lost = lost
        waiting: list[asyncio.Future[Any]] = [*self._waiting]
        self._waiting.clear()
        if self._drained is not None:
            waiting.append(self._drained)
        for one in waiting:
            if not one.done():
                one.set_exception(self.lost)
                one.exception()
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()

    def is_open(self) -> bool:
        """Return whether another message may follow here."""
        return self.lost is None and self.messages < self.server.most_messages

    @property
    def encryption(self) -> str:
        """What this conversation is encrypted with, as `TLSv1.3`, or `none`."""
        tls = None if self._transport is None else self._transport.get_extra_info("ssl_object")
        return str(tls.version()) if tls is not None else "none"

    async def banner(self) -> Reply:
        """Return what the server says first; raises Lost."""
        if self._banner is not None and self.lost is None:
            return self._banner
        reply: Reply = await self.within(self.expect())
        return reply

    def expect(self) -> "asyncio.Future[Reply]":
        """Return what the next reply will be; raises Lost where it is awaited."""
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        if self.lost is not None:
            future.set_exception(self.lost)
            future.exception()  # asked for here: not everybody who might wait does
        else:
            self._waiting.append(future)
        return future

    def write(self, data: bytes) -> None:
        """Send bytes; what is lost is told by whoever awaits the reply."""
        if self._transport is not None and self.lost is None:
            self._transport.write(data)

    async def command(self, line: str, seconds: float | None = None) -> Reply:
        """Say one command and answer its reply; raises Lost."""
        self.write(f"{line}\r\n".encode())
        reply: Reply = await self.within(self.expect(), seconds)
        return reply

    async def within(self, future: "asyncio.Future[Any]", seconds: float | None = None) -> Any:
        """Wait for something as long as this server may take; raises Lost."""
        if future.done():
            return future.result()
        loop = asyncio.get_running_loop()
        self._limit = self.server.command_timeout if seconds is None else seconds
        self._deadline = loop.time() + self._limit
        # One timer a connection, that looks again when it was early: one for each wait costs as much as a message
        if self._timer is None or self._timer.when() > self._deadline:
            self._arm(loop)
        return await future

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(self._deadline, self._late, loop)

    def _late(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if not self._waiting and self._drained is None:
            return
        if loop.time() < self._deadline:
            self._arm(loop)
        else:
            self.end(NoAnswer(f"no answer within {self._limit:g} s"))

    async def encrypt(self, context: Any) -> None:
        """Change to TLS; what the server said before the handshake is forgotten. Raises OSError or ssl.SSLError."""
        assert self._transport is not None
        self._replies.forget()
        made = await asyncio.get_running_loop().start_tls(
            self._transport, self, context, server_hostname=self.server.host,
            ssl_handshake_timeout=self.server.connect_timeout,
        )  # fmt: skip
        if made is None:
            raise OSError("the connection ended during the handshake")
        self.connection_made(made)

    async def left(self) -> None:
        """Wait until all bytes have left this machine; raises Temporary if they never will."""
        if not self._full:
            return
        self._drained = asyncio.get_running_loop().create_future()
        try:
            await self.within(self._drained, self.server.reply_timeout)
        except Lost as error:
            raise Temporary(f"the connection broke before the message was handed over: {error}") from None
        finally:
            self._drained = None

    def abort(self) -> None:
        """Hang up in the middle: the server forgets what was not finished."""
        self.end(Lost("hung up"))

    async def close(self) -> None:
        """Say QUIT and hang up; what the server thinks of it does not matter any more."""
        if self.lost is None:
            with contextlib.suppress(Lost):
                await self.command("QUIT", _GOODBYE_SECONDS)
        self.end(Lost("closed"))


# A message below this leaves in one piece with what stands behind it: the system takes so much at once (`greeting`).
# Of what it does not take at once nobody could tell whether the dot is still here, so what is larger leaves alone
_ONE_WRITE_BYTES = 16_000


class Dialogue(Conversation):
    """One message after the other over one connection."""

    def open(self, envelope: Envelope) -> Opened:
        """Offer an envelope; `ready` says whether it is taken. Raises Permanent for one that no server here takes."""
        commands = transaction(envelope, self.offers)
        if "PIPELINING" not in self.offers:
            self.write(commands[0])
            return Opened(envelope, self.expect(), None, None)
        self.write(b"".join(commands))
        return self._offered(envelope)

    async def ready(self, opened: Opened) -> None:
        """Wait until the server asks for the message; raises Temporary, Permanent or SenderRefused if it does not.

        Unreachable says that this connection takes no more messages.
        """
        try:
            if opened.rcpt is None or opened.data is None:
                await self._step_by_step(opened)
            else:
                await self._all_at_once(opened)
        except Lost as error:
            # It may be this very message that the other side cannot stand, so it costs an attempt and has an end
            raise Temporary(f"the connection broke before the message was handed over: {error}") from None

    async def _step_by_step(self, opened: Opened) -> None:
        _, rcpt, data = transaction(opened.envelope, self.offers)
        reply = await self.within(opened.mail)
        if not reply.is_good:
            await self._refused(reply, of_sender(reply))
        self.write(rcpt)
        reply = await self.within(self.expect())
        if not reply.is_good:
            await self._refused(reply, of_message(reply))
        self.write(data)
        reply = await self.within(self.expect())
        if reply.code != 354:
            await self._refused(reply, of_message(reply if reply.code >= 400 else reply._replace(code=451)))

    async def _all_at_once(self, opened: Opened) -> None:
        assert opened.rcpt is not None and opened.data is not None
        mail = await self.within(opened.mail)
        rcpt = mail if mail.code == 421 else await self.within(opened.rcpt)
        if rcpt.code == 421:  # nothing follows it
            await self._refused(rcpt, of_sender(mail) if rcpt is mail else of_message(rcpt))
        data = await self.within(opened.data)
        if mail.is_good and rcpt.is_good and data.code == 354:
            return
        if data.code == 354:
            # Asked for the message of nobody: an empty one, which has to be refused (RFC 2920, 3.1)
            self.write(b".\r\n")
            await self.within(self.expect())
        if not mail.is_good:
            await self._refused(mail, of_sender(mail))
        if not rcpt.is_good:
            await self._refused(rcpt, of_message(rcpt))
        await self._refused(data, of_message(data if data.code >= 400 else data._replace(code=451)))

    async def _refused(self, reply: Reply, error: Exception) -> None:
        """Bring the server back to where the next envelope can begin, then raise."""
        if reply.code == 421:
            self.end(Lost(reply.words()))
        else:
            with contextlib.suppress(Lost):
                again = await self.command("RSET")
                if not again.is_good:
                    self.end(Lost(again.words()))
        raise error

    async def deliver(self, envelope: Envelope, following: Envelope | None = None) -> tuple[Reply, Opened | None]:
        """Hand over the message that was asked for, and offer the next envelope behind it where the server allows it.

        Answers the acceptance, and what was offered. Raises Temporary or Permanent as the server says; Temporary if the
        dot did not leave this machine; Uncertain if it did and no answer came.
        """
        if self.lost is not None:
            raise Temporary(f"the connection broke before the message was handed over: {self.lost}")
        content = envelope.content if envelope.is_stuffed else stuffed(envelope.content)
        final = self.expect()
        opened = None
        behind = self._behind(following)
        alone = not behind or len(content) >= _ONE_WRITE_BYTES
        self.write(b"".join((content, b".\r\n", b"" if alone else behind)))
        if alone:
            await self.left()
        if alone and behind:
            self.write(behind)
        if following is not None and behind:
            opened = self._offered(following)
        try:
            reply = await self.within(final, self.server.reply_timeout)
        except Lost as error:
            raise Uncertain(f"no reply after the message was handed over: {error}") from None
        self.messages += 1
        if reply.code == 421:
            self.end(Lost(reply.words()))
        if reply.is_good:
            return reply, opened
        raise Refused(of_message(reply), opened)

    def _behind(self, following: Envelope | None) -> bytes:
        """Return the commands that may stand behind a message (RFC 2920, 3.1), or nothing."""
        if following is None or "PIPELINING" not in self.offers or self.messages + 1 >= self.server.most_messages:
            return b""
        try:
            return b"".join(transaction(following, self.offers))
        except Permanent:
            return b""  # said again, and in its own name, where it is offered alone

    def _offered(self, envelope: Envelope) -> Opened:
        return Opened(envelope, self.expect(), self.expect(), self.expect())
