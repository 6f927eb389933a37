"""Pause transports and mail servers that fail, hold campaigns that are rejected, and stop all sending."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from appliance.core import clock, data_dir
from appliance.core.errors import (
    ClientRejected,
    ConnectionFailed,
    DeliveryError,
    MailUnauthenticated,
    RecipientRejected,
    SenderRejected,
    Uncertain,
)
from appliance.sending.delivery import bounce_classes, mx_routes, smtp_connect
from appliance.sending.delivery.mx_routes import get_address_group
from appliance.sending.delivery.smtp_connect import MxTarget
from appliance.sending.messages.delivery_status import PausedTransport
from appliance.sending.messages.ledger import LedgerRow
from appliance.settings import config
from appliance.storage import disk_guard, send_lease

# Consecutive rejections that are our fault, or lost replies, before campaigns are paused (docs/decisions.md#6,
# `transport`).
MAX_REFUSALS = 20
# Messages of a campaign that servers could not authenticate before it is paused, even if others are accepted. A single
# server may be wrong, but the limit is low because each such rejection harms the reputation of the domain.
MAX_UNAUTHENTICATED = 3
# Campaigns, or campaigns and recipient groups, with counts of rejections; above this number the oldest are forgotten.
_MAX_COUNTS = 1_000
# Interval between checks for the STOP file, which is to stop sending within two seconds (docs/promises.md#p5).
_STOP_FILE_SECONDS = 0.05


class PauseRequest(NamedTuple):
    """The providers and the single campaigns to pause, each with the text of the last rejection.

    `providers` reject this client or lose its replies, so every campaign that uses one of them is to be paused.
    `campaigns`, by id, are rejected because of their sender, of missing authentication, or of our reputation at one
    recipient group. Each campaign gets only a text about its own messages, because a text may name a recipient.
    """

    providers: dict[str, str]
    campaigns: dict[int, str]


class _TransportPause(NamedTuple):
    """The pause of a provider that failed: its end (`clock.monotonic`), its start (Unix ms) and the last reason."""

    until: float
    since: int
    reason: str


class _Probe(NamedTuple):
    """A message that shows whether a provider works again, and when to stop waiting for it (`clock.monotonic`)."""

    message_id: int
    until: float


_NO_PROBE = _Probe(0, float("-inf"))


def _forget_oldest(counts: dict[Any, Any]) -> None:
    """Remove the oldest entry of counts that have more than `_MAX_COUNTS`; call it after each addition."""
    if len(counts) > _MAX_COUNTS:
        del counts[next(iter(counts))]


class CircuitBreaker:
    """The transports of one channel that are paused, and the counts of rejections; any thread may call its methods.

    A provider, which is the name of a transport, is paused for `probe_after` seconds when it fails; its messages wait
    without using up attempts. If `is_replaceable` returns true for it, other transports take its messages, so no
    campaign is paused because that provider rejects us. This class does not pause campaigns itself:
    `jobs.advance_campaigns` pauses what `get_pause_request` returns.
    """

    def __init__(self, probe_after: float, is_replaceable: Callable[[str], bool] | None = None) -> None:
        self._probe_after = probe_after
        self._is_replaceable = is_replaceable or (lambda _provider: False)
        self._lock = threading.Lock()
        # By provider: its current pause, or the last one until the provider replies.
        self._pauses: dict[str, _TransportPause] = {}
        self._probes: dict[str, _Probe] = {}
        # Rejections in a row: of this client by provider, of the sender by campaign id.
        self._refusal_counts: dict[str | int, int] = {}
        # By campaign id: ids of the messages that could not be authenticated.
        self._unauthenticated: dict[int, set[int]] = {}
        # By campaign id and recipient group: rejections in a row because of our reputation.
        self._reputation_counts: dict[tuple[int, str], int] = {}
        # What is to be paused until `confirm_pause`, with the reasons (see `PauseRequest`).
        self._providers_to_pause: dict[str, str] = {}
        self._campaigns_to_pause: dict[int, str] = {}

    def get_paused_providers(self) -> tuple[str, ...]:
        """Return the names of the providers that are paused now."""
        now = clock.monotonic()
        with self._lock:
            return tuple(name for name, pause in self._pauses.items() if pause.until > now)

    def get_unavailable_providers(self) -> tuple[str, ...]:
        """Return the providers that are paused now, and those that wait for the answer to a probe (`begin_probe`)."""
        if not self._pauses:  # the usual case, asked for each message
            return ()
        now = clock.monotonic()
        with self._lock:
            return tuple(
                name
                for name, pause in self._pauses.items()
                if pause.until > now or self._probes.get(name, _NO_PROBE).until > now
            )

    def begin_probe(self, row: LedgerRow) -> bool:
        """Use a message as the probe of its provider if a pause has just ended, and return whether it is one.

        Until the provider has answered, or `probe_after` seconds have passed, it gets no other message: other
        transports can take them.
        """
        now = clock.monotonic()
        with self._lock:
            pause = self._pauses.get(row.provider)
            if pause is None or pause.until > now or self._probes.get(row.provider, _NO_PROBE).until > now:
                return False
            self._probes[row.provider] = _Probe(row.id, now + self._probe_after)
            return True

    def cancel_probe(self, row: LedgerRow) -> None:
        """Forget a probe that was not sent to its provider, so that the next message is the probe."""
        if not self._probes:  # the usual case, asked for each message that is dropped
            return
        with self._lock:
            if self._probes.get(row.provider, _NO_PROBE).message_id == row.id:
                del self._probes[row.provider]

    def is_probe(self, row: LedgerRow) -> bool:
        """Return whether a message is the probe of its provider."""
        return self._probes.get(row.provider, _NO_PROBE).message_id == row.id

    def get_paused_transports(self) -> tuple[PausedTransport, ...]:
        """Return the providers that are paused now, each with the reason, the start and the end of the pause (ms)."""
        loop_now, now = clock.monotonic(), clock.now_ms()
        with self._lock:
            return tuple(
                PausedTransport(name, pause.reason, pause.since, now + int((pause.until - loop_now) * 1000))
                for name, pause in self._pauses.items()
                if pause.until > loop_now
            )

    def handle_connection_failure(self, provider: str, error: DeliveryError) -> None:
        """Pause a provider for `probe_after` seconds, because it is unreachable or rejects us.

        A ClientRejected error also counts towards the rejections in a row of the provider (`MAX_REFUSALS`).
        """
        with self._lock:
            self._pause(provider, error)
            if isinstance(error, ClientRejected) and not self._is_replaceable(provider):
                self._count_refusal(provider, error)

    def _pause(self, provider: str, error: DeliveryError) -> None:
        self._probes.pop(provider, None)
        last = self._pauses.get(provider)
        since = last.since if last is not None else clock.now_ms()
        self._pauses[provider] = _TransportPause(clock.monotonic() + self._probe_after, since, error.text)

    def record_answer(self, row: LedgerRow, error: DeliveryError | None) -> None:
        """Count the reply to a message for its provider and campaign; `error` is None for an accepted message.

        Rejections of the sender and failed authentications count against the campaign. A reply for which neither the
        sender nor the transport is the cause resets the counts of rejections in a row. A lost reply counts like a
        rejection by the provider: it may accept every message without saying so, and each would be sent twice. Do not
        call this for a message that could not be rendered, unless its sender was rejected.
        """
        if error is None and not (self._pauses or self._refusal_counts or self._reputation_counts):
            return  # the usual case: there is nothing to end or to reset
        with self._lock:
            is_sender_fault = isinstance(error, SenderRejected | MailUnauthenticated)
            if is_sender_fault and error is not None and error.smtp is not None:
                self._end_pause(row.provider)  # the provider has replied, not our own check of the sender
            if isinstance(error, MailUnauthenticated):
                self._count_unauthenticated(row, error)
            elif isinstance(error, SenderRejected):
                if row.campaign_id is not None:
                    self._count_refusal(row.campaign_id, error)
            elif isinstance(error, Uncertain):
                if row.provider != mx_routes.DIRECT:  # there, only one of many servers is at fault
                    self._count_refusal(row.provider, error)
                    if row.provider in self._providers_to_pause:
                        self._pause(row.provider, error)
            elif error is None or not isinstance(error, ConnectionFailed | ClientRejected):
                self._end_pause(row.provider)
                self._record_good_reply(row, error)

    def _end_pause(self, provider: str) -> None:
        """Forget the last pause of a provider that has replied, and its probe.

        A pause that has not ended continues, because the reply may have come late, on a connection from before it.
        """
        pause = self._pauses.get(provider)
        if pause is not None and pause.until <= clock.monotonic():
            del self._pauses[provider]
            self._probes.pop(provider, None)

    def _record_good_reply(self, row: LedgerRow, error: DeliveryError | None) -> None:
        """Reset the counts of rejections in a row; neither the sender nor the transport is the cause of the reply."""
        if self._refusal_counts:
            self._refusal_counts.pop(row.provider, None)
            if row.campaign_id is not None:
                self._refusal_counts.pop(row.campaign_id, None)
        if row.campaign_id is not None and (self._reputation_counts or isinstance(error, RecipientRejected)):
            self._count_reputation(row.campaign_id, get_address_group(row.recipient), error)

    def _count_reputation(self, campaign_id: int, group: str, error: DeliveryError | None) -> None:
        """Count rejections of a campaign by a recipient group because of our reputation.

        An accepted message resets the count. At `MAX_REFUSALS` the campaign is to be paused.
        """
        key = (campaign_id, group)
        if isinstance(error, RecipientRejected) and bounce_classes.is_sender_blocked(
            error.smtp, error.enhanced, error.text
        ):
            self._reputation_counts[key] = self._reputation_counts.get(key, 0) + 1
            _forget_oldest(self._reputation_counts)
            if self._reputation_counts[key] >= MAX_REFUSALS:
                bounce_class = bounce_classes.classify(error.smtp, error.enhanced, error.text)
                self._campaigns_to_pause[campaign_id] = f"{error.text} - {bounce_class.help}"
        elif error is None:
            self._reputation_counts.pop(key, None)

    def _count_unauthenticated(self, row: LedgerRow, error: MailUnauthenticated) -> None:
        if row.campaign_id is None:
            return
        message_ids = self._unauthenticated.setdefault(row.campaign_id, set())
        message_ids.add(row.id)
        _forget_oldest(self._unauthenticated)
        if len(message_ids) >= MAX_UNAUTHENTICATED:
            advice = bounce_classes.authentication_help(error.enhanced, error.text)
            self._campaigns_to_pause[row.campaign_id] = f"{error.text} - {advice}"

    def _count_refusal(self, key: str | int, error: DeliveryError) -> None:
        self._refusal_counts[key] = self._refusal_counts.get(key, 0) + 1
        _forget_oldest(self._refusal_counts)
        if self._refusal_counts[key] >= MAX_REFUSALS:
            self._refusal_counts[key] = 0
            if isinstance(key, int):
                self._campaigns_to_pause[key] = error.text
            else:
                self._providers_to_pause[key] = error.text

    def get_held_campaigns(self) -> tuple[int, ...]:
        """Return the ids of the campaigns that must not send because they are about to be paused."""
        if not self._campaigns_to_pause:  # the usual case, asked for each message
            return ()
        with self._lock:
            return tuple(self._campaigns_to_pause)

    def get_pause_request(self) -> PauseRequest:
        """Return the providers and campaigns to pause; call `confirm_pause` for them, or they are returned again."""
        with self._lock:
            return PauseRequest({**self._providers_to_pause}, {**self._campaigns_to_pause})

    def confirm_pause(self, paused: PauseRequest) -> None:
        """Record that providers and campaigns were paused, and reset the counts of the campaigns."""
        with self._lock:
            for provider in paused.providers:
                self._providers_to_pause.pop(provider, None)
            for campaign_id in paused.campaigns:
                self._campaigns_to_pause.pop(campaign_id, None)
                self._unauthenticated.pop(campaign_id, None)
            self._reputation_counts = {
                key: count for key, count in self._reputation_counts.items() if key[0] not in paused.campaigns
            }


# In direct delivery, mail servers fail one by one. If others can be reached, the fault is theirs; if none can, it is
# ours.

# After this many failures in a row, servers are not tried for `DEAD_SECONDS` (D21).
MAX_FAILURES = 3
DEAD_SECONDS = 900.0
# Recipient groups that must reject a sender before the sender is at fault.
_MAX_REFUSING_GROUPS = 3
# A reply within this time shows that the internet can be reached.
_RECENT_SECONDS = 60.0
# The result of a probe is used for this time, so that messages waiting for it do not probe again.
_OUTAGE_CACHE_SECONDS = 5.0
_MAX_CACHED_HOSTS = 5_000


class UnreachableHosts:
    """The mail servers that this process could not reach, and those that rejected a sender; used on one event loop."""

    def __init__(self) -> None:
        self._last_reply_at = float("-inf")  # monotonic time of the last reply of any server
        # Until when the result of the last probe counts, and the result; for mail servers and for name servers.
        self._outage: tuple[float, str | None] = (float("-inf"), None)
        self._dns_outage: tuple[float, str | None] = (float("-inf"), None)
        # By sender domain: the recipient groups that rejected it since a message of it was last accepted.
        self._refusing_groups: dict[str, set[str]] = {}
        # By `MxTarget.key`: failures in a row, the time until which the servers are not tried, and the last reason.
        self._failures: dict[str, tuple[int, float, str]] = {}

    def get_downtime(self, target: MxTarget) -> tuple[float, str] | None:
        """Return (seconds for which the servers are not tried, reason), or None if they may be tried now."""
        _, until, reason = self._failures.get(target.key, (0, 0.0, ""))
        seconds_left = until - clock.monotonic()
        return (seconds_left, reason) if seconds_left > 0 else None

    def record_failure(self, target: MxTarget, reason: str) -> None:
        """Count a failure to reach servers; after `MAX_FAILURES` in a row they are not tried for `DEAD_SECONDS`."""
        if len(self._failures) >= _MAX_CACHED_HOSTS:
            self._failures.clear()
        count = self._failures.get(target.key, (0, 0.0, ""))[0] + 1
        until = clock.monotonic() + DEAD_SECONDS if count >= MAX_FAILURES else 0.0
        self._failures[target.key] = (count, until, reason)

    def record_connection(self, target: MxTarget) -> None:
        """Record that servers accepted a connection, and reset their failures."""
        self._last_reply_at = clock.monotonic()
        self._failures.pop(target.key, None)

    def record_reply(self) -> None:
        """Record that a server replied, whatever the reply was."""
        self._last_reply_at = clock.monotonic()

    def record_sender_refusal(self, sender: str, group: str) -> bool:
        """Record that a recipient group rejects a sender; return whether `_MAX_REFUSING_GROUPS` groups reject it.

        Only rejections since the last accepted message count. `sender` is the domain of the sender.
        """
        groups = self._refusing_groups.setdefault(sender, set())
        groups.add(group)
        return len(groups) >= _MAX_REFUSING_GROUPS

    def record_accepted(self, sender: str) -> None:
        """Record that a message of a sender domain was accepted, and delete its recorded rejections."""
        self._refusing_groups.pop(sender, None)

    async def find_outage(self) -> str | None:
        """Return why no mail server at all can be reached; None if one can be reached or the cause is unknown.

        The servers of well-known domains are probed only if no server replied within `_RECENT_SECONDS`.
        """
        if clock.monotonic() < self._last_reply_at + _RECENT_SECONDS:
            return None
        until, reason = self._outage
        if until < clock.monotonic():
            reason = await smtp_connect.find_port_block()
            self._outage = (clock.monotonic() + _OUTAGE_CACHE_SECONDS, reason)
            if reason is None:
                # None counts as a reply, so that the next failure does not probe again at once.
                self.record_reply()
        return reason

    async def find_dns_outage(self) -> str | None:
        """Return why no name server answers; None if one answers or the cause is unknown.

        Names are looked up only if no name server answered within `_RECENT_SECONDS`.
        """
        if clock.monotonic() < mx_routes.get_last_dns_answer_at() + _RECENT_SECONDS:
            return None
        until, reason = self._dns_outage
        if until < clock.monotonic():
            reason = await self._probe_dns()
            self._dns_outage = (clock.monotonic() + _OUTAGE_CACHE_SECONDS, reason)
        return reason

    @staticmethod
    async def _probe_dns() -> str | None:
        names = config.current().email.direct.probes
        errors = await asyncio.gather(*map(mx_routes.fetch_mx_error, names))
        if not errors or clock.monotonic() < mx_routes.get_last_dns_answer_at() + _RECENT_SECONDS:
            return None
        return f"no name server answers, so no mail server can be found: {errors[0]}"


class StopSwitch:
    """The reasons that stop all sending of this process: its end (`stopping`), a STOP file, the storage, a lost lease.

    The stop of a single account is not checked here.
    """

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._checked_at, self._has_stop_file = 0.0, False

    def is_halted(self) -> bool:
        """Return whether no further message may be claimed."""
        return self.stopping.is_set() or self.is_blocked()

    def is_blocked(self) -> bool:
        """Return whether not even a claimed message may be sent; while the process ends, SMTP sends those.

        The STOP file in the data directory is checked every `_STOP_FILE_SECONDS`: checking it before each message would
        take a twentieth of the sender's time.
        """
        now = time.monotonic()
        if now > self._checked_at + _STOP_FILE_SECONDS:
            self._checked_at, self._has_stop_file = now, data_dir.has_stop_file(config.current().data_dir)
        return self._has_stop_file or disk_guard.send_blocker() is not None or not send_lease.is_held()
