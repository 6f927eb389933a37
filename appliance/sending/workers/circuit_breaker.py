"""Circuit breaker: which transports are closed for now, and which senders are rejected again and again."""

import threading
import time
from typing import NamedTuple

from appliance.core import clock, data_dir
from appliance.core.errors import (
    ClientRejected,
    ConnectionFailed,
    DeliveryError,
    MailUnauthenticated,
    RecipientRejected,
    SenderRejected,
)
from appliance.core.send_status import ClosedTransport
from appliance.sending.delivery import bounce_classes
from appliance.sending.delivery.mx_routes import get_address_group
from appliance.sending.messages.ledger import Claim
from appliance.settings import config
from appliance.storage import disk_guard

# Consecutive rejections that are our fault, before campaigns pause (docs/decisions.md#6, `transport`).
MAX_REFUSALS = 20
# Messages of a campaign that servers could not authenticate before it pauses, even if others are accepted. A single
# server may be wrong, but the limit is low because each of these rejections counts against the domain.
MAX_UNAUTHENTICATED = 3


class OpenCircuit(NamedTuple):
    """What must be paused, and why: providers that reject all our mail, and campaigns whose sender is rejected."""

    providers: frozenset[str]
    campaigns: frozenset[int]
    reason: str


class CircuitBreaker:
    """The state of all transports, shared by the sending threads.

    An unreachable provider is probed again later and costs no message an attempt.
    """

    def __init__(self, probe_after: float) -> None:
        self._probe_after = probe_after
        self._lock = threading.Lock()
        self._closed_until: dict[str, float] = {}
        self._close_reasons: dict[str, tuple[int, str]] = {}  # since when a provider is closed, and why
        self._refusal_counts: dict[str | int, int] = {}
        self._open: set[str | int] = set()
        self._held_campaigns: set[int] = set()
        self._unauthenticated: dict[int, set[int]] = {}
        self._unwelcome: dict[tuple[int, str], int] = {}
        self._reason = ""

    @staticmethod
    def is_stopped() -> bool:
        """Return whether a STOP file stops all sending of this installation."""
        return data_dir.has_stop_file(config.current().data_dir)

    def get_closed_providers(self) -> tuple[str, ...]:
        """Return the providers that are closed now."""
        now = time.monotonic()
        with self._lock:
            return tuple(name for name, until in self._closed_until.items() if until > now)

    def get_closed_transports(self) -> tuple[ClosedTransport, ...]:
        """Return each closed provider with the reason and the time it is probed again."""
        loop_now, now = time.monotonic(), clock.now_ms()
        with self._lock:
            return tuple(
                ClosedTransport(
                    name,
                    self._close_reasons[name][1],
                    self._close_reasons[name][0],
                    now + int((until - loop_now) * 1000),
                )
                for name, until in self._closed_until.items()
                if until > loop_now and name in self._close_reasons
            )

    def record_connection_failure(self, provider: str, error: DeliveryError) -> None:
        """Close a provider that is unreachable, or that rejects us, until it is probed again."""
        with self._lock:
            self._closed_until[provider] = time.monotonic() + self._probe_after
            self._close_reasons[provider] = (self._close_reasons.get(provider, (clock.now_ms(), ""))[0], error.text)
            self._reason = error.text
            if isinstance(error, ClientRejected):
                self._count_refusal(provider)

    def record_answer(self, claim: Claim, error: DeliveryError | None) -> None:
        """Count the outcome of a message; any outcome but a rejection of us resets the count of rejections."""
        with self._lock:
            if isinstance(error, MailUnauthenticated):
                self._count_unauthenticated(claim, error)
            elif isinstance(error, SenderRejected):
                self._reason = error.text
                if claim.campaign_id is not None:
                    self._count_refusal(claim.campaign_id)
            elif not isinstance(error, ConnectionFailed | ClientRejected):
                self._refusal_counts.pop(claim.provider, None)
                self._close_reasons.pop(claim.provider, None)
                if claim.campaign_id is not None:
                    self._refusal_counts.pop(claim.campaign_id, None)
                    if self._unwelcome or isinstance(error, RecipientRejected):
                        self._count_unwelcome(claim.campaign_id, get_address_group(claim.recipient), error)

    def _count_unwelcome(self, campaign_id: int, group: str, error: DeliveryError | None) -> None:
        """Count consecutive rejections by the servers of one group because of the sender's reputation."""
        key = (campaign_id, group)
        if isinstance(error, RecipientRejected) and bounce_classes.is_sender_blocked(
            error.smtp, error.enhanced, error.text
        ):
            self._unwelcome[key] = self._unwelcome.get(key, 0) + 1
            if self._unwelcome[key] >= MAX_REFUSALS:
                bounce_class = bounce_classes.classify(error.smtp, error.enhanced, error.text)
                self._reason = f"{error.text} - {bounce_class.help}"
                self._open.add(campaign_id)
                self._held_campaigns.add(campaign_id)
        elif error is None:
            self._unwelcome.pop(key, None)

    def _count_unauthenticated(self, claim: Claim, error: MailUnauthenticated) -> None:
        if claim.campaign_id is None:
            return
        message_ids = self._unauthenticated.setdefault(claim.campaign_id, set())
        message_ids.add(claim.id)
        if len(message_ids) >= MAX_UNAUTHENTICATED:
            self._reason = f"{error.text} - {bounce_classes.authentication_help(error.enhanced, error.text)}"
            self._open.add(claim.campaign_id)
            self._held_campaigns.add(claim.campaign_id)

    def _count_refusal(self, key: str | int) -> None:
        self._refusal_counts[key] = self._refusal_counts.get(key, 0) + 1
        if self._refusal_counts[key] >= MAX_REFUSALS:
            self._open.add(key)
            self._refusal_counts[key] = 0
            if isinstance(key, int):
                self._held_campaigns.add(key)

    def get_held_campaigns(self) -> tuple[int, ...]:
        """Return the campaigns that send nothing more until they are paused."""
        with self._lock:
            return tuple(self._held_campaigns)

    def get_open_circuit(self) -> OpenCircuit:
        """Return what must be paused; the result stays the same until `confirm_pause` is called."""
        with self._lock:
            return OpenCircuit(
                frozenset(key for key in self._open if isinstance(key, str)),
                frozenset(key for key in self._open if isinstance(key, int)),
                self._reason,
            )

    def confirm_pause(self, paused: OpenCircuit) -> None:
        """Reset the counts of paused providers and campaigns, so that they start at zero when resumed."""
        with self._lock:
            self._open -= paused.providers | paused.campaigns
            self._held_campaigns -= paused.campaigns
            for campaign_id in paused.campaigns:
                self._unauthenticated.pop(campaign_id, None)
            self._unwelcome = {key: count for key, count in self._unwelcome.items() if key[0] not in paused.campaigns}


# Interval between checks for the STOP file; workers check again before each message.
_STOP_FILE_SECONDS = 0.25


class StopSwitch:
    """Tells workers whether sending is stopped: the process ends, a user stopped sending, or the disk is full."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._stop_file_checked = (0.0, False)

    def __call__(self) -> bool:
        """Return whether sending is stopped."""
        now = time.monotonic()
        if now > self._stop_file_checked[0] + _STOP_FILE_SECONDS:
            self._stop_file_checked = (now, CircuitBreaker.is_stopped())
        return self._stop_file_checked[1] or self.stopping.is_set() or disk_guard.send_blocker() is not None
