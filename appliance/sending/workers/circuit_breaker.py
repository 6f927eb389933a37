"""Close transports that fail for some seconds, and report which providers and campaigns to pause after rejections."""

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

# Consecutive rejections that are our fault before campaigns are paused (docs/decisions.md#6, `transport`).
MAX_REFUSALS = 20
# Messages of a campaign that servers could not authenticate before it is paused, even if others are accepted. A single
# server may be wrong, but the limit is low because each such rejection harms the reputation of the domain.
MAX_UNAUTHENTICATED = 3
# Interval between checks for the STOP file, which is to stop sending within two seconds (docs/promises.md#p5).
_STOP_FILE_SECONDS = 0.05


class OpenCircuit(NamedTuple):
    """Providers that reject us, ids of campaigns whose sender is rejected, and the text of the last rejection.

    They must be paused, as well as all campaigns that use such a provider.
    """

    providers: frozenset[str]
    campaigns: frozenset[int]
    reason: str


class _StopFile:
    """The STOP file in the data directory, whose existence is checked every `_STOP_FILE_SECONDS`.

    Checking it before each message would take a twentieth of the sender's time.
    """

    def __init__(self) -> None:
        self._checked_at, self._exists = 0.0, False

    def exists(self) -> bool:
        """Return whether there is a STOP file."""
        now = time.monotonic()
        if now > self._checked_at + _STOP_FILE_SECONDS:
            self._checked_at, self._exists = now, data_dir.has_stop_file(config.current().data_dir)
        return self._exists


class CircuitBreaker:
    """The transports of one channel that are closed, and the counts of rejections; any thread may call its methods.

    A provider that fails is closed for `probe_after` seconds, in which its messages wait without using up attempts.
    This class pauses no campaign itself: `jobs.tasks.advance_campaigns` pauses what `get_open_circuit` returns.
    """

    def __init__(self, probe_after: float) -> None:
        self._probe_after = probe_after
        self._lock = threading.Lock()
        self._closed_until: dict[str, float] = {}
        # By provider: when it was closed first, in ms, and the last reason.
        self._close_reasons: dict[str, tuple[int, str]] = {}
        # By provider (of the client) or campaign id (of the sender): rejections in a row.
        self._refusal_counts: dict[str | int, int] = {}
        # By campaign id: ids of the messages that could not be authenticated.
        self._unauthenticated: dict[int, set[int]] = {}
        # By campaign id and recipient group: rejections in a row because of our reputation.
        self._reputation_counts: dict[tuple[int, str], int] = {}
        # What has to be paused, until `confirm_pause`, and the last reason.
        self._open_providers: set[str] = set()
        self._open_campaigns: set[int] = set()
        self._reason = ""
        self._stop_file = _StopFile()

    def is_stopped(self) -> bool:
        """Return whether a STOP file in the data directory stops all sending of this installation."""
        return self._stop_file.exists()

    def get_closed_providers(self) -> tuple[str, ...]:
        """Return the names of the providers that are closed now."""
        now = time.monotonic()
        with self._lock:
            return tuple(name for name, until in self._closed_until.items() if until > now)

    def get_closed_transports(self) -> tuple[ClosedTransport, ...]:
        """Return the providers that are closed now, each with the reason, the start and the end of the closure (ms)."""
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
        """Close a provider for `probe_after` seconds, because it is unreachable or rejects us.

        A ClientRejected error also counts towards the rejections in a row of the provider (`MAX_REFUSALS`).
        """
        with self._lock:
            self._closed_until[provider] = time.monotonic() + self._probe_after
            self._close_reasons[provider] = (self._close_reasons.get(provider, (clock.now_ms(), ""))[0], error.text)
            self._reason = error.text
            if isinstance(error, ClientRejected):
                self._count_refusal(provider)

    def record_answer(self, claim: Claim, error: DeliveryError | None) -> None:
        """Count the outcome of a message for its provider and campaign; `error` is None for an accepted message.

        Rejections of the sender and failed authentications count against the campaign. An outcome for which neither the
        sender nor the transport is the cause resets the counts of rejections in a row.
        """
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
                    if self._reputation_counts or isinstance(error, RecipientRejected):
                        self._count_reputation(claim.campaign_id, get_address_group(claim.recipient), error)

    def _count_reputation(self, campaign_id: int, group: str, error: DeliveryError | None) -> None:
        """Count rejections of a campaign by a recipient group because of our reputation.

        An accepted message resets the count. At `MAX_REFUSALS` the campaign is to be paused.
        """
        key = (campaign_id, group)
        if isinstance(error, RecipientRejected) and bounce_classes.is_sender_blocked(
            error.smtp, error.enhanced, error.text
        ):
            self._reputation_counts[key] = self._reputation_counts.get(key, 0) + 1
            if self._reputation_counts[key] >= MAX_REFUSALS:
                bounce_class = bounce_classes.classify(error.smtp, error.enhanced, error.text)
                self._reason = f"{error.text} - {bounce_class.help}"
                self._open_campaigns.add(campaign_id)
        elif error is None:
            self._reputation_counts.pop(key, None)

    def _count_unauthenticated(self, claim: Claim, error: MailUnauthenticated) -> None:
        if claim.campaign_id is None:
            return
        message_ids = self._unauthenticated.setdefault(claim.campaign_id, set())
        message_ids.add(claim.id)
        if len(message_ids) >= MAX_UNAUTHENTICATED:
            self._reason = f"{error.text} - {bounce_classes.authentication_help(error.enhanced, error.text)}"
            self._open_campaigns.add(claim.campaign_id)

    def _count_refusal(self, key: str | int) -> None:
        self._refusal_counts[key] = self._refusal_counts.get(key, 0) + 1
        if self._refusal_counts[key] >= MAX_REFUSALS:
            self._refusal_counts[key] = 0
            if isinstance(key, int):
                self._open_campaigns.add(key)
            else:
                self._open_providers.add(key)

    def get_held_campaigns(self) -> tuple[int, ...]:
        """Return the ids of the campaigns that must not send because they are about to be paused."""
        with self._lock:
            return tuple(self._open_campaigns)

    def get_open_circuit(self) -> OpenCircuit:
        """Return the providers and campaigns to pause; call `confirm_pause` for them, or they are returned again."""
        with self._lock:
            return OpenCircuit(frozenset(self._open_providers), frozenset(self._open_campaigns), self._reason)

    def confirm_pause(self, paused: OpenCircuit) -> None:
        """Record that providers and campaigns were paused, and reset the counts of the campaigns."""
        with self._lock:
            self._open_providers -= paused.providers
            self._open_campaigns -= paused.campaigns
            for campaign_id in paused.campaigns:
                self._unauthenticated.pop(campaign_id, None)
            self._reputation_counts = {
                key: count for key, count in self._reputation_counts.items() if key[0] not in paused.campaigns
            }


class StopSwitch:
    """A callable that returns whether this process may not send.

    It may not while it is ending (`stopping`), while there is a STOP file, and while the disk guard reports a problem.
    The stop switch of an account is not checked here.
    """

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._stop_file = _StopFile()

    def __call__(self) -> bool:
        """Return whether sending is stopped."""
        return self._stop_file.exists() or self.stopping.is_set() or disk_guard.send_blocker() is not None
