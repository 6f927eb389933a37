"""Decides what is taken: mail to our own return paths, for feedback, and for leaving. Nothing is ever passed on."""

import asyncio
import logging
import re
from concurrent.futures import ThreadPoolExecutor
from email.errors import MessageError
from typing import Any, NamedTuple

from aiosmtpd.smtp import Envelope

from appliance import tokens
from appliance.db import work
from appliance.db.open import one
from appliance.engagement import unsubscribes
from appliance.errors import Unavailable
from appliance.feedback import mail
from appliance.feedback.facts import Fact
from appliance.inbound.session import MAX_RECIPIENTS, Session, is_bare
from appliance.messages import links

log = logging.getLogger("campanero.inbound")
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
    return one("SELECT 1 FROM sending_domain WHERE name = ? LIMIT 1", (domain_name,)) is not None


def _write(told: list[list[Fact]], leaving: list[str]) -> int:
    """Write what a mail tells, all of it or nothing; returns how much of it is new."""
    changed = mail.apply(told)
    return changed + sum(unsubscribes.opt_out(token, "mailto") for token in leaving)
