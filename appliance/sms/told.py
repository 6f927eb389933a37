"""What providers tell us later: what became of an SMS, and what people write."""

from collections.abc import Mapping
from typing import NamedTuple

# In the order they can follow each other: what is told never goes back (an answer `sent` says no more than accepted)
STATUSES = ("sent", "delivered", "undelivered", "failed")


class Received(NamedTuple):
    """A request to a hook of a provider.

    `url` is the address as it was asked for under our `base_url`, with its query; header names are in lower case.
    """

    url: str
    headers: Mapping[str, str]
    body: bytes


class Receipt(NamedTuple):
    """What became of an SMS: by what the provider calls it, or by our own name for it (`message_id`)."""

    provider_id: str
    status: str  # one of STATUSES
    message_id: int | None = None
    code: str | None = None  # the provider's own
    text: str = ""


class Incoming(NamedTuple):
    """What somebody wrote to one of our numbers.

    `answered` names the keyword that the provider has acted on and answered itself (STOP, START, HELP), if it has.
    """

    provider_id: str | None
    sender: str
    to: str
    body: str
    answered: str | None = None


class Told(NamedTuple):
    """What a request says, once its signature is believed; `reply` is what the provider wants to read as our answer."""

    receipts: tuple[Receipt, ...] = ()
    incoming: tuple[Incoming, ...] = ()
    media: str = "application/json"
    reply: bytes = b'{"received":1}'
