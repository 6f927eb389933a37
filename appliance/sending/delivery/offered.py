"""What comes of a conversation beside replies: an envelope that was offered, a refusal, the end of the connection."""

import asyncio
from typing import NamedTuple

from appliance.core.errors import DeliveryError
from appliance.sending.delivery.replies import Reply
from appliance.sending.delivery.send import Envelope


class Refused(Exception):
    """A message that was refused after its dot: why, and the next envelope that was offered behind it."""

    def __init__(self, error: DeliveryError, opened: "Opened | None") -> None:
        super().__init__(str(error))
        self.error, self.opened = error, opened


class Lost(Exception):
    """The connection is gone; its text says how."""


class NoAnswer(Lost):
    """The other side did not answer in time."""


class NotEncrypted(Exception):
    """A server offers encryption that does not come about; its text says why."""


class Opened(NamedTuple):
    """An envelope that was offered: what is awaited for it. Nothing of its message has left."""

    envelope: Envelope
    mail: "asyncio.Future[Reply]"
    rcpt: "asyncio.Future[Reply] | None"
    data: "asyncio.Future[Reply] | None"
