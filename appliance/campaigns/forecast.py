"""How long a campaign takes to leave where its speed is limited: what the page says before anybody sends it."""

from typing import NamedTuple

from appliance import config
from appliance.campaigns.findings import transport
from appliance.delivery.groups import domain_of
from appliance.tables import Campaign
from appliance.work import rate_limit

_HOUR, _DAY = 3600.0, 86_400.0


class Forecast(NamedTuple):
    """The limit that is felt first, in words, and how many seconds a campaign takes with it."""

    limit: str
    seconds: float


def of(campaign: Campaign, count: int, sender: str | None) -> Forecast | None:
    """Return how long so many messages (of SMS: parts) take; None where nothing we know of limits them."""
    if count <= 0 or transport(campaign) == "capture":
        return None
    limits = _sms() if campaign.channel == "sms" else _email(sender)
    felt = [Forecast(words, _lasts(count, most, seconds)) for words, most, seconds in limits if most]
    return max(felt, key=lambda one: one.seconds, default=None)


def _lasts(count: int, most: float, seconds: float) -> float:
    """What is left of an hour's or a day's worth has to wait for the next one."""
    if seconds == 1:
        return count / most
    whole, rest = divmod(count - 1, int(most))
    return whole * seconds + (rest / most) * min(seconds, 60)


def _sms() -> list[tuple[str, float, float]]:
    here = config.current().sms
    return [
        (f"{here.rate_per_second:g} a second", here.rate_per_second, 1),
        (f"{here.parts_per_day:,} parts a day", here.parts_per_day, _DAY),
    ]


def _email(sender: str | None) -> list[tuple[str, float, float]]:
    here = config.current().email
    found = [
        (f"{here.rate_per_second:g} a second", here.rate_per_second, 1.0),
        (f"{here.rate_per_hour:,} an hour", float(here.rate_per_hour), _HOUR),
    ]
    for name, limit in map(rate_limit.read, here.sender_limits):
        if sender and name == domain_of(sender):
            found.append((f"{limit.per_second:g} a second from {name}", limit.per_second, 1.0))
            found.append((f"{limit.per_hour:,} an hour from {name}", float(limit.per_hour), _HOUR))
    return found
