"""Circuit breaker: which transports are closed for now, and which senders are refused again and again."""

import threading
import time
from typing import NamedTuple

from appliance.core import clock, data_dir
from appliance.core.errors import DeliveryError, Ours, Permanent, SenderRefused, Unauthenticated, Unreachable
from appliance.core.send_status import Closed
from appliance.sending.delivery import classes
from appliance.sending.delivery.groups import group_of
from appliance.sending.messages.ledger import Claim
from appliance.settings import config
from appliance.storage import disk_guard

# Refusals in a row that are our fault, before campaigns pause (docs/decisions.md#6, `transport`)
MAX_REFUSALS = 20
# So many messages of a campaign that servers cannot tell to be ours, whatever became of the others: one server may be
# wrong about us, and each such refusal is held against the domain
MAX_UNAUTHENTICATED = 3


class OpenCircuit(NamedTuple):
    """What must be paused: providers that refuse us altogether, campaigns whose sender is refused, and the words."""

    providers: frozenset[str]
    campaigns: frozenset[int]
    words: str


class CircuitBreaker:
    """Shared by all sending threads. An unreachable provider is probed again later and costs nobody an attempt."""

    def __init__(self, probe_after: float) -> None:
        self._probe_after = probe_after
        self._lock = threading.Lock()
        self._closed: dict[str, float] = {}
        self._why: dict[str, tuple[int, str]] = {}  # of what is closed: since when, and the words
        self._refused: dict[str | int, int] = {}
        self._shut: set[str | int] = set()
        self._held: set[int] = set()
        self._strangers: dict[int, set[int]] = {}
        self._unwelcome: dict[tuple[int, str], int] = {}
        self._words = ""

    @staticmethod
    def is_stopped() -> bool:
        """Return whether a file stops all sending of this installation."""
        return data_dir.is_stopped(config.current().data_dir)

    def closed(self) -> tuple[str, ...]:
        """Return the providers that are not to be used now."""
        now = time.monotonic()
        with self._lock:
            return tuple(name for name, until in self._closed.items() if until > now)

    def standing(self) -> tuple[Closed, ...]:
        """Return what is closed, why and until when."""
        steady, now = time.monotonic(), clock.now_ms()
        with self._lock:
            return tuple(
                Closed(name, self._why[name][1], self._why[name][0], now + int((until - steady) * 1000))
                for name, until in self._closed.items() if until > steady and name in self._why
            )  # fmt: skip

    def connecting_failed(self, provider: str, error: DeliveryError) -> None:
        """Close a provider that cannot be reached, or will not have us, until it is probed again."""
        with self._lock:
            self._closed[provider] = time.monotonic() + self._probe_after
            self._why[provider] = (self._why.get(provider, (clock.now_ms(), ""))[0], error.text)
            self._words = error.text
            if isinstance(error, Ours):
                self._count(provider)

    def answered(self, claim: Claim, error: DeliveryError | None) -> None:
        """Note how a message fared: anything but a refusal of us ends the row of refusals."""
        with self._lock:
            if isinstance(error, Unauthenticated):
                self._unauthenticated(claim, error)
            elif isinstance(error, SenderRefused):
                self._words = error.text
                if claim.campaign_id is not None:
                    self._count(claim.campaign_id)
            elif not isinstance(error, Unreachable | Ours):
                self._refused.pop(claim.provider, None)
                self._why.pop(claim.provider, None)
                if claim.campaign_id is not None:
                    self._refused.pop(claim.campaign_id, None)
                    if self._unwelcome or isinstance(error, Permanent):
                        self._heard(claim.campaign_id, group_of(claim.recipient), error)

    def _heard(self, campaign_id: int, group: str, error: DeliveryError | None) -> None:
        """Count refusals in a row, by the servers of one group, for what they think of where the mail comes from."""
        here = (campaign_id, group)
        if isinstance(error, Permanent) and classes.is_unwelcome(error.smtp, error.enhanced, error.text):
            self._unwelcome[here] = self._unwelcome.get(here, 0) + 1
            if self._unwelcome[here] >= MAX_REFUSALS:
                found = classes.classify(error.smtp, error.enhanced, error.text)
                self._words = f"{error.text} - {found.help}"
                self._shut.add(campaign_id)
                self._held.add(campaign_id)
        elif error is None:
            self._unwelcome.pop(here, None)

    def _unauthenticated(self, claim: Claim, error: Unauthenticated) -> None:
        if claim.campaign_id is None:
            return
        strangers = self._strangers.setdefault(claim.campaign_id, set())
        strangers.add(claim.id)
        if len(strangers) >= MAX_UNAUTHENTICATED:
            self._words = f"{error.text} - {classes.remedy(error.enhanced, error.text)}"
            self._shut.add(claim.campaign_id)
            self._held.add(claim.campaign_id)

    def _count(self, who: str | int) -> None:
        self._refused[who] = self._refused.get(who, 0) + 1
        if self._refused[who] >= MAX_REFUSALS:
            self._shut.add(who)
            self._refused[who] = 0
            if isinstance(who, int):
                self._held.add(who)

    def held(self) -> tuple[int, ...]:
        """Return the campaigns that nothing more is taken from until they are paused."""
        with self._lock:
            return tuple(self._held)

    def shut(self) -> OpenCircuit:
        """Return what must be paused now; it stays so until it is (`paused`)."""
        with self._lock:
            return OpenCircuit(
                frozenset(who for who in self._shut if isinstance(who, str)),
                frozenset(who for who in self._shut if isinstance(who, int)),
                self._words,
            )

    def paused(self, shut: OpenCircuit) -> None:
        """Forget what is paused now; when it goes on it is tried afresh."""
        with self._lock:
            self._shut -= shut.providers | shut.campaigns
            self._held -= shut.campaigns
            for number in shut.campaigns:
                self._strangers.pop(number, None)
            self._unwelcome = {one: count for one, count in self._unwelcome.items() if one[0] not in shut.campaigns}


# Whether sending is stopped: the process is ending, a person stopped it, or the storage cannot be written.

# A file that stops everything is looked for this often, and again before each message
_STOP_FILE_SECONDS = 0.25


class StopSwitch:
    """Asked by everybody who sends."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._stop_seen = (0.0, False)

    def __call__(self) -> bool:
        """Say so."""
        now = time.monotonic()
        if now > self._stop_seen[0] + _STOP_FILE_SECONDS:
            self._stop_seen = (now, CircuitBreaker.is_stopped())
        return self._stop_seen[1] or self.stopping.is_set() or disk_guard.trouble() is not None
