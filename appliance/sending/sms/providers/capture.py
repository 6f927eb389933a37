"""The built-in inbox, which takes SMS instead of the world."""

from collections.abc import Awaitable, Callable
from typing import ClassVar

from appliance.core.errors import Ours
from appliance.sending.sms.gsm import Accepted, Text
from appliance.sending.sms.providers.kind import Provider
from appliance.settings.schema import Sms

Keep = Callable[[Text], Awaitable[object]]
_keep: Keep | None = None


def keep_with(keep: Keep | None) -> None:
    """Return what keeps an SMS; None: nothing does any more."""
    global _keep
    _keep = keep


class Capture(Provider):
    """Keeps each SMS in the inbox."""

    name: ClassVar[str] = "capture"
    takes_once: ClassVar[bool] = True

    def lacks(self, sms: Sms | None = None) -> list[tuple[str, str]]:
        """Return nothing: it is always there."""
        return []

    async def send(self, text: Text) -> Accepted:
        """Keep a message, once."""
        if _keep is None:
            raise Ours("the built-in inbox is not open")
        await _keep(text)
        return Accepted(f"capture-{text.id}")
