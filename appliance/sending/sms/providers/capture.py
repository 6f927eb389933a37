"""The provider that stores SMS in the built-in inbox instead of sending them."""

from collections.abc import Awaitable, Callable
from typing import ClassVar

from appliance.core.errors import ClientRejected
from appliance.sending.sms.providers.base import Provider
from appliance.sending.sms.segments import AcceptedSms, OutgoingSms
from appliance.settings.schema import Sms

StoreSms = Callable[[OutgoingSms], Awaitable[object]]
_store_sms: StoreSms | None = None


def set_inbox(store_sms: StoreSms | None) -> None:
    """Set the function that stores an SMS in the inbox; with None, sending fails."""
    global _store_sms
    _store_sms = store_sms


class Capture(Provider):
    """A provider that stores each SMS in the built-in inbox; storing an SMS again has no effect."""

    name: ClassVar[str] = "capture"
    is_idempotent: ClassVar[bool] = True

    def find_setting_faults(self, sms: Sms | None = None) -> list[tuple[str, str]]:
        """Return an empty list, because the inbox has no settings."""
        return []

    async def send(self, text: OutgoingSms) -> AcceptedSms:
        """Store an SMS in the inbox. Raises ClientRejected if no inbox was set (`set_inbox`)."""
        if _store_sms is None:
            raise ClientRejected("the built-in inbox is not open")
        text.check()
        await _store_sms(text)
        return AcceptedSms(f"capture-{text.id}")
