"""What a provider of SMS is: how a message is handed over and looked up, and what its hooks tell."""

from abc import ABC, abstractmethod
from typing import ClassVar

from appliance.core.errors import NotFound, Unlisted
from appliance.sending.sms.codes import Received, Told
from appliance.sending.sms.gsm import Accepted, Text
from appliance.settings.schema import Sms


class Provider(ABC):
    """A way for SMS to leave; a new one is one file and one line in `PROVIDERS`. It keeps nothing between calls."""

    name: ClassVar[str]
    can_look_up: ClassVar[bool] = False
    takes_once: ClassVar[bool] = False  # the same message, however often it is handed over
    chooses_sender: ClassVar[bool] = False  # where none is named
    hooks: ClassVar[tuple[str, ...]] = ()  # names of its doors under /hooks/, "twilio/status"

    @abstractmethod
    def lacks(self, sms: Sms | None = None) -> list[tuple[str, str]]:
        """Return what these settings (the present ones) lack before it can be used: (name of the setting, words)."""

    @abstractmethod
    async def send(self, text: Text) -> Accepted:
        """Hand a message over, once.

        Raises Permanent (refused for good), Ours (we are refused: login, sender, registration), Throttled (with the
        seconds to wait), Temporary, Unreachable (nothing of the request was written), or Uncertain: it may have been
        taken. The `enhanced` code says what a refusal means in the terms of RFC 3463 where there is one, `smtp` holds
        the status of HTTP, and the text begins with the provider's own code.
        """

    async def find(self, text: Text, since: int) -> tuple[Accepted, ...]:
        """Return each such message that the provider took at `since` (ms) or later, the oldest first.

        Alike are recipient, sender and body: which of them is this one the ledger knows. Raises DeliveryError where
        that cannot be known now, Unlisted where it never can.
        """
        raise Unlisted("it lists no messages")

    async def greet(self) -> str:
        """Find out whether it accepts us, sending nothing, and answer in words; raises DeliveryError."""
        return "is always there"

    def advice(self) -> list[str]:
        """Return what may be meant so in the settings and is not good."""
        return []

    def secret(self) -> str:
        """Return what opens its hooks; empty: they are closed (404)."""
        return ""

    def read(self, hook: str, received: Received) -> Told:
        """Read a request to one of its hooks; raises NotAllowed where it is forged or too old, Invalid, or NotFound."""
        raise NotFound

    def callback_url(self, message_id: int) -> str:
        """Return where it tells what became of a message; empty where it tells nothing."""
        return ""
