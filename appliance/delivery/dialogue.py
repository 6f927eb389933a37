"""The SMTP dialogue: where the server allows it, a message and the envelope of the next go out together, so that a
message costs one round trip (RFC 2920).

Every failure is named by the phase it happened in. Before the final dot a broken connection means that nothing was
taken; after it, acceptance cannot be known (RFC 1047). Used by one task at a time.
"""

import contextlib

from appliance.delivery.conversation import Conversation
from appliance.delivery.offered import Lost, Opened, Refused
from appliance.delivery.replies import Reply, of_message, of_sender
from appliance.delivery.send import Envelope, stuffed, transaction
from appliance.errors import Permanent, Temporary, Uncertain

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
