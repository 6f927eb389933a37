"""Choose the transport of an email by the rules of `email.routes`, and describe the state of all transports.

The choice is made each time a row is read from the queue, and stored when the message is claimed. It depends only on
the row, the settings, and which transports can send now, so a message has exactly one transport or waits. A message
that may have been accepted keeps its transport: another one would not recognize it, and send a second copy (P3).
"""

import hashlib
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from appliance.sending.delivery.mx_routes import domain_of, get_address_group, get_recipient_group
from appliance.sending.messages.delivery_status import SendStatus, list_transports
from appliance.sending.messages.ledger import LedgerRow
from appliance.sending.messages.senders import WarmUpDay, get_transport_limit_name
from appliance.settings import transports
from appliance.settings.schema import Email, Route
from appliance.settings.transports import ALL_KINDS, CAPTURE, DEFAULT


class TransportStates(NamedTuple):
    """Which transports cannot take messages now, by key.

    `unavailable` are paused, throttled as a whole, or have used up an hourly limit; `full` have used up the quota of
    their warm-up, which transactional messages need not wait for. `throttled_groups` are (transport, recipient group)
    pairs whose servers asked for a lower rate; in direct delivery a group is the operator of the servers, if known.
    """

    unavailable: frozenset[str] = frozenset()
    full: frozenset[str] = frozenset()
    throttled_groups: frozenset[tuple[str, str]] = frozenset()

    def is_open(self, key: str, row: LedgerRow) -> bool:
        """Return whether a transport can take a message now."""
        return (
            key not in self.unavailable
            and (row.transactional or key not in self.full)
            and not (
                self.throttled_groups
                and (key, get_recipient_group(key, row.recipient_key or "")) in self.throttled_groups
            )
        )


ALL_OPEN = TransportStates()


class TransportRules:
    """The rules of one configuration. `has_choice` is False while every email has the transport it was queued for."""

    def __init__(self, email: Email) -> None:
        self.keys = transports.list_keys(email)
        self.has_choice = email.transport != CAPTURE and bool(email.transports)
        self._default = email.transport
        self._known = frozenset((*ALL_KINDS, *self.keys))
        self._rules = [_Rule(route, email.transport) for route in email.routes]

    def list_candidates(self, row: LedgerRow) -> Sequence[str]:
        """Return the transports that may send a message, in the order in which they are preferred."""
        if row.provider == CAPTURE or row.channel != "email" or row.uncertain_count:
            return (row.provider,)
        if not self.has_choice:
            # The transport that the message was queued for may have been deleted since then.
            return (row.provider,) if row.provider in self._known else (self._default,)
        address = row.recipient_key or ""
        domain = domain_of(row.sender or "")
        for rule in self._rules:
            if rule.matches(domain, row.transactional, address):
                return rule.order(address)
        return (self._default,)

    def choose(self, row: LedgerRow, states: TransportStates) -> LedgerRow:
        """Return a row with its transport: the first candidate that is open, or the first of all if none is."""
        candidates = self.list_candidates(row)
        if len(candidates) > 1:
            key = next((key for key in candidates if states.is_open(key, row)), candidates[0])
        else:
            key = candidates[0]
        return row if key == row.provider else row._replace(provider=key)

    def replace_deleted(self, row: LedgerRow) -> LedgerRow:
        """Return a row with the default transport if its own has been deleted since it was queued.

        Use it while there is only one transport.
        """
        return row if row.provider in self._known else self.choose(row, ALL_OPEN)

    def has_alternative(self, row: LedgerRow) -> bool:
        """Return whether a transport other than that of the row may send its message."""
        return any(key != row.provider for key in self.list_candidates(row))

    def is_replaceable(self, key: str) -> bool:
        """Return whether the messages of a transport need not wait for it: each rule with it names another one too."""
        used = [rule for rule in self._rules if key in rule.shares]
        has_catch_all = any(rule.is_catch_all for rule in self._rules)
        return (
            self.has_choice
            and all(len(rule.shares) > 1 for rule in used)
            and (has_catch_all or key != self._default)
            and bool(used)
        )


class ReplacingChooser:
    """The `TransportChooser` while there is only one transport, which takes the messages of deleted transports."""

    def __init__(self, rules: TransportRules) -> None:
        self.choose = rules.replace_deleted

    def use(self, _row: LedgerRow) -> None:
        """Do nothing, because a single transport has no probes."""


class RulesChooser:
    """The `TransportChooser` that applies rules to the rows of one call of the queue reader.

    `states` are those of the transports at the start of the call. `begin_probe` is that of the circuit breaker: a
    transport that gets a probe takes no other message.
    """

    def __init__(
        self, rules: TransportRules, states: TransportStates, begin_probe: Callable[[LedgerRow], bool]
    ) -> None:
        self._rules, self._states, self._begin_probe = rules, states, begin_probe

    def choose(self, row: LedgerRow) -> LedgerRow:
        """Return a row with the transport that is to send it, if the reader returns it."""
        return self._rules.choose(row, self._states)

    def use(self, row: LedgerRow) -> None:
        """Make a row that the reader returns the probe of its transport, if the pause of that has just ended."""
        if self._begin_probe(row):
            self._states = self._states._replace(unavailable=self._states.unavailable | {row.provider})


class _Rule:
    def __init__(self, route: Route, default: str) -> None:
        self.shares = {default if key == DEFAULT else key: share for key, share in route.shares.items()}
        self._domains = frozenset(domain.lower() for domain in route.domains)
        self._recipients = frozenset(name.lower() for name in route.recipients)
        self._traffic = route.traffic
        self._weighted = [(key, share) for key, share in self.shares.items() if share]
        self._standby = tuple(key for key, share in self.shares.items() if not share)
        self.is_catch_all = not self._domains and not self._recipients and self._traffic == "all"

    def matches(self, sender_domain: str, is_transactional: bool, address: str) -> bool:
        if self._traffic != "all" and (self._traffic == "transactional") != is_transactional:
            return False
        if self._domains and sender_domain not in self._domains:
            return False
        return not self._recipients or bool({get_address_group(address), domain_of(address)} & self._recipients)

    def order(self, address: str) -> Sequence[str]:
        """Return the transports of the rule for a recipient, those with a share first.

        A recipient always gets the same order, and each transport is first for its share of all recipients. This is
        weighted rendezvous hashing: a change of the shares moves as few recipients as possible.
        """
        if len(self._weighted) == 1:
            return (self._weighted[0][0], *self._standby)
        ranked = sorted(self._weighted, key=lambda entry: (-math.log(_hash(entry[0], address)) / entry[1], entry[0]))
        return (*(key for key, _ in ranked), *self._standby)


def _hash(key: str, address: str) -> float:
    """Return a number above 0 and at most 1 that is the same for the same transport and recipient."""
    digest = hashlib.blake2b(f"{key}\0{address}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest) + 1) / 2.0**64


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
    """Return the state of all transports that may send email, the default one first."""
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
