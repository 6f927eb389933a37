"""The state of each transport of email, for the delivery status, the settings and the health check."""

from typing import NamedTuple

from appliance.sending.messages.delivery_status import SendStatus, list_transports
from appliance.sending.messages.senders import WarmUpDay, get_transport_limit_name
from appliance.settings import transports
from appliance.settings.schema import Email


class TransportStatus(NamedTuple):
    """A transport with its limits, and why it takes no messages now (`text`; None if it is open) and until when.

    `until` is milliseconds since 1970 UTC. `warm_up` is the present day of its warm-up, if it has one and has sent
    today; while its quota is used up, only transactional email is sent with it.
    """

    key: str
    name: str | None  # None for the default transport
    kind: str
    text: str | None
    until: int | None
    connections: int
    per_second: float
    per_hour: int
    warm_up: WarmUpDay | None
    is_warm_up_full: bool


def list_transport_statuses(email: Email, status: SendStatus) -> list[TransportStatus]:
    """Return the state of all transports that email may leave with, the default one first."""
    paused = {item.provider: (item.text, item.until) for item in status.paused_transports}
    full = {limit.name: limit for limit in status.exhausted_limits}
    warming = {item.day.domain: item for item in status.warming_domains}
    statuses = []
    for key in list_transports(email):
        named, own = transports.find_named(key, email), transports.build_settings(key, email)
        rates, limit = named or email, full.get(get_transport_limit_name(key))
        text, until = paused.get(key, (None, None))
        if text is None and limit is not None:
            text, until = f"limit of {limit.per_hour} an hour is used up", limit.until
        quota = warming.get(get_transport_limit_name(key))
        statuses.append(
            TransportStatus(
                key, named.name if named else None, own.transport, text, until, own.connections, rates.rate_per_second,
                rates.rate_per_hour, quota.day if quota else None, quota.is_full if quota else False,
            )
        )  # fmt: skip
    return statuses
