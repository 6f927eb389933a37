"""What a provider is given, and what it says to that."""

from typing import NamedTuple


class Text(NamedTuple):
    """An SMS ready to be handed over.

    `id` is our message's, `callback_url` where the provider tells what became of it.
    """

    id: int
    to: str  # E.164
    sender: str  # a number in E.164, a short code, or a name; empty: the provider chooses
    body: str
    callback_url: str


class Accepted(NamedTuple):
    """The provider took it: what it calls it, and its first word on what becomes of it (`told.STATUSES`)."""

    provider_id: str
    status: str = "sent"
