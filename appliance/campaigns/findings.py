"""What a look at a campaign finds, and everything it looks at."""

from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from appliance import config
from appliance.account.acting import By
from appliance.messages.compose import Content
from appliance.tables import Account, Brand, Campaign

if TYPE_CHECKING:
    from appliance.designs.compiled import Compiled


class Finding(Struct):
    """One thing that is not in order: a reason of docs/decisions.md#3, its words, and the field to go to."""

    code: str
    message: str
    field: str


class Case(NamedTuple):
    """A campaign with all that its checks look at."""

    campaign: Campaign
    account: Account
    brand: Brand
    confirmed: bool
    by: By  # who would send it
    content: Content | None  # of an e-mail
    text: "Compiled | None"  # of an SMS
    content_error: str | None
    real: bool  # a transport that leaves this machine

    @property
    def is_readable(self) -> bool:
        """Whether there is a message that can be read."""
        return self.content is not None or self.text is not None

    @property
    def email(self) -> bool:
        """Whether it is an e-mail."""
        return bool(self.campaign.channel == "email")


def transport(campaign: Campaign) -> str:
    """Return what will carry a campaign: a test key's go to capture whatever is set."""
    here = config.current()
    if campaign.test:
        return "capture"
    return here.sms.transport if campaign.channel == "sms" else here.email.transport


def persons(count: int) -> str:
    """Return how many people."""
    return "1 person" if count == 1 else f"{count:,} people"
