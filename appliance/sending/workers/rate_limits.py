"""One rate limit, the base class of the rate limits of a channel, the adaptive throttle, and the limits of SMS.

Only messages that are not claimed yet wait for a limit. The limits of email are in `email_rate_limits`.
"""

import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

from appliance.core import clock
from appliance.core.errors import ConnectionFailed, DeliveryError, RateLimited, Uncertain
from appliance.sending.messages import queue
from appliance.sending.messages.delivery_status import ExhaustedLimit, SendStatus, ThrottledGroup
from appliance.sending.messages.ledger import LedgerRow
from appliance.sending.messages.queue_reader import LimitNames, TransportChooser
from appliance.sending.messages.senders import get_limit_name
from appliance.settings.config import RateLimit, parse_limit
from appliance.settings.schema import Sms
from appliance.storage import transactions

HOUR_SECONDS = 3600.0
# A message that begins late by up to this many seconds does not delay the next one. After a longer delay the next one
# may follow sooner by only this much, to avoid bursts.
_MAX_MADE_UP_SECONDS = 0.1
# The time from which a message may be sent if no clock tells: a message in progress has to end first, or a new quota to
# begin. `ReadyQueue` waits for that change.
AFTER_CHANGE = float("inf")


class RateLimiter:
    """A rate limit and the messages that count towards it; times are seconds of `clock.monotonic`.

    Only the event loop of the senders may change a RateLimiter; other threads may read it.
    """

    def __init__(self, name: str, limit: RateLimit, is_transport: bool = False) -> None:
        self.name, self.limit, self.is_transport = name, limit, is_transport
        self.in_use = 0
        self._gap = 1 / limit.per_second if limit.per_second else 0.0
        self._next = 0.0
        self._hour: deque[float] = deque()

    def allowed_at(self, now: float) -> float:
        """Return when the next message may be sent, or AFTER_CHANGE if a message in progress has to end first."""
        if self.limit.connections and self.in_use >= self.limit.connections:
            return AFTER_CHANGE
        return max(self._next, self.hour_allowed_at(now))

    def hour_allowed_at(self, now: float) -> float:
        """Return when the hourly limit allows the next message; 0.0 if the limit allows a message now."""
        if not self.limit.per_hour:
            return 0.0
        # Other threads call this too, so expired entries are removed only where one is added.
        try:
            at = self._hour[-self.limit.per_hour] + HOUR_SECONDS
        except IndexError:  # fewer than the limit were sent
            return 0.0
        return at if at > now else 0.0

    def take(self, now: float) -> None:
        """Count a message whose sending begins at `now`, and reserve its time for the limit of messages a second."""
        self.in_use += 1
        if self._gap:
            self._next = max(self._next, now - _MAX_MADE_UP_SECONDS) + self._gap
        self.record(now)

    def end(self, was_sent: bool) -> None:
        """Count a message as no longer in progress; if not `was_sent`, it counts towards no limit."""
        self.in_use -= 1
        if not was_sent:
            self._next -= self._gap
            if self._hour:
                self._hour.pop()  # that of another message perhaps, but only their number matters

    def record(self, at: float) -> None:
        """Count a message sent at the time `at` for the hourly limit.

        Calls must be in order of time. At the start, messages that an earlier process sent are recorded too.
        """
        if self.limit.per_hour:
            self._hour.append(at)
            while self._hour[0] <= at - HOUR_SECONDS:
                self._hour.popleft()


# The adaptive throttle reduces the rate of a recipient group whose servers asked for a lower one. The group is paused,
# then gets half as many connections, and with one connection an increasing gap between messages. It recovers by one
# step after each `WINDOW_SECONDS` without a refusal, or sooner if enough messages are accepted in a row.

WINDOW_SECONDS = 20.0
LONG_PAUSE_SECONDS = 600.0
# With a gap between messages fewer of them are sent, so fewer have to be accepted.
_ACCEPTED_TO_RECOVER, _ACCEPTED_TO_RECOVER_WITH_GAP = 50, 5
_MIN_GAP_SECONDS, _MAX_GAP_SECONDS = 0.5, 60.0


class AdaptiveThrottle:
    """The reduced rate of one recipient group; used on one event loop.

    `name` is the name of the limit; `group` is given if it is another, because several transports reach the group.
    Times are seconds of `clock.monotonic`, except `since` (Unix ms), when the group was throttled. `usual` is the
    number of connections without a throttle, `first` the initial number (default `usual`), `pause` the first pause in
    seconds.
    """

    def __init__(self, name: str, usual: int, pause: float, first: int | None = None, group: str | None = None) -> None:
        self.name, self.group = name, group or name
        self.since = clock.now_ms()
        self._usual = usual
        self.max_in_use = usual if first is None else first
        self.paused_until = 0.0
        self.reason = ""
        self.in_use = 0
        self._pause = pause
        self._level = 0
        self._gap = 0.0
        self._next = 0.0
        self._window: float | None = None  # start of the window without a refusal
        self._accepted_count = 0  # messages accepted in the window

    def slow_down(self, now: float, text: str, is_long: bool) -> None:
        """Reduce the rate and pause; with `is_long`, pause for `LONG_PAUSE_SECONDS` and continue with one connection.

        `text` is the server's reply. A refusal during a pause does not reduce the rate further, because the refused
        message was sent before the pause.
        """
        if not self.reason:
            self.since = clock.now_ms()
        self.reason = text
        if is_long:
            self.max_in_use, self._gap, self.paused_until = 1, 0.0, now + LONG_PAUSE_SECONDS
        elif now >= self.paused_until:
            self._level += 1
            if self.max_in_use == 1:
                self._gap = min(_MAX_GAP_SECONDS, max(_MIN_GAP_SECONDS, self._gap * 2))
            self.max_in_use = max(1, self.max_in_use // 2)
            self.paused_until = now + min(LONG_PAUSE_SECONDS, self._pause * 2 ** (self._level - 1))
        self._window = None

    def record_accepted(self, now: float) -> bool:
        """Count an accepted message, recover by a step if due, and return whether the full rate is reached again."""
        if now < self.paused_until:
            return False
        if self._window is None:
            self._window, self._accepted_count = now, 0
        self._accepted_count += 1
        if now >= self._window + WINDOW_SECONDS or self._accepted_count >= (
            _ACCEPTED_TO_RECOVER_WITH_GAP if self._gap else _ACCEPTED_TO_RECOVER
        ):
            self._window, self._accepted_count = now, 0
            self._level = max(0, self._level - 1)
            if self._gap:
                self._gap = self._gap / 2 if self._gap > _MIN_GAP_SECONDS else 0.0
            else:
                self.max_in_use = min(self._usual, self.max_in_use + 1)
        return self.max_in_use >= self._usual and not self._gap

    def allowed_at(self, now: float) -> float:
        """Return when the next message may be sent, or AFTER_CHANGE if a message in progress has to end first."""
        if now < self.paused_until:
            return self.paused_until
        return AFTER_CHANGE if self.in_use >= self.max_in_use else self._next

    def take(self, now: float) -> None:
        """Count a message as in progress."""
        self.in_use += 1
        self._next = now + self._gap

    def end(self, was_sent: bool) -> None:
        """Count a message as no longer in progress; if not `was_sent`, the next need not keep the gap."""
        self.in_use -= 1
        if not was_sent:
            self._next = 0.0

    def to_rate_limited(self, error: DeliveryError, now: float) -> RateLimited:
        """Return an error as RateLimited until the pause ends, spread so that not all messages come at once."""
        wait = max(self.paused_until - now, 1.0) * random.uniform(1.0, 1.1)
        return RateLimited(error.text, wait, error.smtp, error.enhanced)

    def describe(self, provider: str, now: float, now_ms: int) -> ThrottledGroup:
        """Return the throttle as pages show it.

        `now` is the present time in seconds of `clock.monotonic`, and `now_ms` the same time in Unix milliseconds.
        """
        until = now_ms + int((self.paused_until - now) * 1000) if self.paused_until > now else None
        return ThrottledGroup(provider, self.group, self.reason, self.since, until, self.max_in_use)


# The name of the limits that apply to all messages of a channel, or to all of a provider.
ALL = "*"


class SendLimit(Protocol):
    """A limit that messages wait for; times are from `clock.monotonic`."""

    name: str

    def allowed_at(self, now: float, /) -> float:
        """Return when the next message may be sent, or AFTER_CHANGE if a message in progress has to end first."""

    def take(self, now: float, /) -> None:
        """Count a message as in progress."""

    def end(self, was_sent: bool, /) -> None:
        """Count a message as no longer in progress; `was_sent` is False for one that was put back."""


# Messages of a limited group to render ahead, for each allowed connection or each message a second.
READY_FACTOR = 2
# The same for each connection of a transport without a limit of messages a second.
TRANSPORT_READY_FACTOR = 8
_SOON_SECONDS = 5.0


class RateLimits(ABC):
    """The limits of one channel; used on one event loop, and only read from other threads.

    `is_unlimited` is True while there is no limit that could delay any message, and `has_overall_limit` if the settings
    limit the whole channel. A message is admitted from `admit` to `release`: in that time it counts towards the limits
    that apply to it.
    """

    def __init__(self, overall: RateLimit) -> None:
        self.overall = RateLimiter(ALL, overall)
        self.has_overall_limit = any(overall)
        self.is_unlimited = False
        self._admitted: dict[int, list[SendLimit]] = {}
        # By message id: the message that takes over its place when it is released (`follow`).
        self._followers: dict[int, int] = {}
        self._has_counted_past = False

    @abstractmethod
    def _get_limits_of(self, row: LedgerRow, sender: str) -> list[SendLimit]:
        """Return the limits that apply to a message, given its sender address or number."""

    @abstractmethod
    def _get_all_limits(self) -> Iterable[SendLimit]:
        """Return all limits of the channel, configured and temporary ones."""

    @abstractmethod
    def _get_group_limits(self) -> Iterable[tuple[str, RateLimiter | AdaptiveThrottle]]:
        """Return (group name, limit) for each limited group.

        Of the messages of these groups, only those that can be sent soon are rendered ahead.
        """

    @abstractmethod
    def get_throttled_providers(self) -> tuple[str, ...]:
        """Return the names of the providers that are throttled as a whole."""

    @abstractmethod
    def get_status(self) -> SendStatus:
        """Return what of the channel is paused, throttled or has used up a limit; may be called from any thread."""

    def has_sender_limits(self) -> bool:
        """Return whether campaigns are held back while the limits of all their senders have no room."""
        return False

    def get_sender_limit_name(self, sender: str) -> str:
        """Return the name of the limit of a sender address or number."""
        return get_limit_name(sender)

    async def load_quota(self, row: LedgerRow, sender: str) -> None:
        """Load the sender's quota of today from the database, if the channel has quotas and this one is missing."""
        return

    def admit(self, row: LedgerRow, sender: str) -> SendLimit | None:
        """Admit a message: count it towards its limits and return None, or return the limit that it has to wait for."""
        if self.is_unlimited:
            return None
        limits = self._get_limits_of(row, sender)
        now = clock.monotonic()
        for limit in limits:
            if limit.allowed_at(now) > now:
                return limit
        for limit in limits:
            limit.take(now)
        if limits:
            self._admitted[row.id] = limits
        return None

    def still_admits(self, row: LedgerRow, sender: str) -> bool:
        """Return whether a message is still admitted; if no limit applied to it before, admit it now if possible."""
        return self.is_unlimited or row.id in self._admitted or self.admit(row, sender) is None

    def follow(self, row: LedgerRow, sender: str, first: LedgerRow) -> bool:
        """Admit a message that will be sent behind another on the same connection, and return whether it may be.

        It may be if no limit applies to it, or only one that both share and that allows it to take the place of the
        first message when that is released.
        """
        if self.is_unlimited:
            return True
        limits = self._get_limits_of(row, sender)
        if limits and self._shares_place(limits, row, first):
            self._followers[first.id] = row.id
            return True
        return not limits

    def get_limit_to_wait_for(self, row: LedgerRow, first: LedgerRow) -> str | None:
        """Return the name of a transport's limit, if the message cannot follow another because it has that transport.

        The message then waits for that limit, and does not hold up those behind it. Return None for any other message.
        """
        return None

    def _shares_place(self, limits: list[SendLimit], row: LedgerRow, first: LedgerRow) -> bool:
        """Return whether a message with these limits may take the place of another when that is released."""
        return False

    def release(self, message_id: int, was_sent: bool = True) -> None:
        """End the admission of a message; `was_sent` is False for one that was put back."""
        follower = self._followers.pop(message_id, None) if self._followers else None
        limits = self._admitted.pop(message_id, None) if self._admitted else None
        if limits is None:
            # It may have been about to take the place of another message.
            for first, second in [*self._followers.items()]:
                if second == message_id:
                    del self._followers[first]
        elif follower is not None:
            self._admitted[follower] = limits
        else:
            for limit in limits:
                limit.end(was_sent)

    # Returns the names of the limits that can hold a row back before it is rendered; None for the usual ones.
    get_names: LimitNames | None = None

    def get_chooser(
        self, _unavailable: Collection[str], _begin_probe: Callable[[LedgerRow], bool]
    ) -> TransportChooser | None:
        """Return the chooser of transports for the rows read next, or None to send each row as it is stored.

        The arguments are `get_unavailable_providers` and `begin_probe` of the circuit breaker.
        """
        return None

    def falls_over(self, _row: LedgerRow, _unavailable: Collection[str]) -> bool:
        """Return whether another provider may take a message at once, because its own takes no messages now.

        The second argument is `get_unavailable_providers` of the circuit breaker.
        """
        return False

    def list_unread(self, paused: Collection[str]) -> tuple[str, ...]:
        """Return the providers whose rows are not read; `paused` are those that the circuit breaker has paused."""
        return (*paused, *self.get_throttled_providers())

    def list_unavailable(self, paused: Collection[str]) -> Collection[str]:
        """Return the providers that can take no message now.

        `paused` is the result of `get_unavailable_providers` of the circuit breaker. Messages that were rendered for
        these providers leave the ready queue and are read again.
        """
        return paused

    def get_room(self, waiting: Mapping[str, int], _unavailable: Collection[str] = ()) -> dict[str, int]:
        """Return the number of further messages of each limited group to render, by group name.

        `waiting` maps the name of a limit to the number of rendered messages that wait for it. `_unavailable` is the
        result of `get_unavailable_providers` of the circuit breaker, for channels whose providers have limits.
        """
        now = clock.monotonic()
        room: dict[str, int] = {}
        for group, limit in self._get_group_limits():
            opens_at = limit.allowed_at(now)
            is_paused = opens_at != AFTER_CHANGE and opens_at > now + _SOON_SECONDS
            room_left = 0 if is_paused else max(0, _get_group_max_ready(limit) - waiting.get(group, 0))
            room[group] = min(room.get(group, room_left), room_left)
        return room

    def get_unavailable_limits(self, _unavailable: Collection[str]) -> set[str]:
        """Return the names of the limits that hold messages back although they have room, by default none.

        The time at which such a limit has room does not say when these messages may be sent.
        """
        return set()

    def get_max_ready(self, default: int) -> int:
        """Return the number of messages to render ahead: `default`, or fewer if the overall rate is low."""
        rate = self.overall.limit.per_second
        return min(default, max(READY_FACTOR, int(READY_FACTOR * rate))) if rate else default

    def get_opening_time(self, names: Collection[str], has_others: bool) -> float:
        """Return the earliest time at which a message that waits for one of the named limits may be sent.

        The time is in seconds of `clock.monotonic`. With `has_others`, some messages wait only for the overall limit,
        so only that limit counts.
        """
        now = clock.monotonic()
        opens_at = dict.fromkeys(names, now)
        overall_at = now
        for limit in self._get_all_limits():
            if limit.name == ALL:
                overall_at = max(overall_at, limit.allowed_at(now))
            elif limit.name in opens_at:
                opens_at[limit.name] = max(opens_at[limit.name], limit.allowed_at(now))
        return max(overall_at, now if has_others else min(opens_at.values(), default=now))

    async def count_past_hour(self, channel: str) -> None:
        """Count the channel's messages of the last hour towards the hourly limits; only the first call has an effect.

        Call it before sending, because an earlier process may have used up a limit.
        """
        limiters = (limit for limit in self._get_all_limits() if isinstance(limit, RateLimiter))
        if not self._has_counted_past and any(limiter.limit.per_hour for limiter in limiters):
            since = clock.now_ms() - int(HOUR_SECONDS * 1000)
            self.count_past(await transactions.fetch(queue.list_accepted_since, since, channel))
            self._has_counted_past = True

    def count_past(self, messages: Iterable[tuple[int, str, str | None, str]]) -> None:
        """Count messages of the last hour towards the hourly limits.

        Each message is (sent at in ms, provider, sender, recipient), and the oldest comes first; older messages are
        ignored.
        """
        loop_now, now = clock.monotonic(), clock.now_ms()
        for sent_at, provider, sender, recipient in messages:
            at = loop_now - (now - sent_at) / 1000
            if at > loop_now - HOUR_SECONDS:
                for limit in self._get_configured_limits(provider, sender or "", recipient or ""):
                    limit.record(at)

    @abstractmethod
    def _get_configured_limits(self, provider: str, sender: str, recipient: str) -> Iterable[RateLimiter]:
        """Return the limits of the settings that apply to a message."""

    def get_full_limits(self) -> tuple[ExhaustedLimit, ...]:
        """Return the hourly limits that are used up now."""
        loop_now, now = clock.monotonic(), clock.now_ms()
        return tuple(
            ExhaustedLimit(limiter.name, limiter.limit.per_hour, now + int((at - loop_now) * 1000))
            for limiter in self._get_all_limits()
            if isinstance(limiter, RateLimiter) and (at := limiter.hour_allowed_at(loop_now)) > loop_now
        )


def _get_group_max_ready(limiter: RateLimiter | AdaptiveThrottle) -> int:
    if isinstance(limiter, AdaptiveThrottle):
        return READY_FACTOR * limiter.max_in_use
    limit = limiter.limit
    if limiter.is_transport and not limit.per_second:
        return TRANSPORT_READY_FACTOR * limit.connections
    if not (limit.connections or limit.per_second):
        return max(READY_FACTOR, limit.per_hour)  # until these are sent, no message waits
    return max(READY_FACTOR, READY_FACTOR * limit.connections, int(READY_FACTOR * limit.per_second))


# The limits of SMS: overall and by sender, from the settings and from the provider's replies. A sender that is
# throttled does not delay other senders. A provider that repeatedly does not reply gets one message at a time until it
# replies, so that few messages become uncertain.

# Consecutive uncertain messages before the provider is paused.
MAX_UNCERTAIN = 3
# First pause of a throttled sender if the provider names none; it doubles with each further refusal.
_PAUSE_SECONDS = 1.0


class SmsRateLimits(RateLimits):
    """The limits of SMS in one process; used on one event loop, and only read from other threads."""

    def __init__(self, sms: Sms) -> None:
        super().__init__(RateLimit(sms.rate_per_second))
        self._provider, self._usual = sms.transport, sms.connections
        self._senders = {
            f"from {name}": RateLimiter(f"from {name}", limit) for name, limit in map(parse_limit, sms.sender_limits)
        }
        self._has_limits = bool(self.has_overall_limit or self._senders)
        self._throttles: dict[str, AdaptiveThrottle] = {}
        self._uncertain_in_a_row = 0
        # For a provider that did not reply: first one message at a time, twice as many after each reply.
        self._probe: RateLimiter | None = None
        self._update_is_unlimited()

    def _update_is_unlimited(self) -> None:
        self.is_unlimited = not (self._has_limits or self._throttles or self._probe)

    def get_throttled_providers(self) -> tuple[str, ...]:
        """Return an empty tuple, because limits pause single senders of SMS but never a whole provider."""
        return ()

    def _get_limits_of(self, row: LedgerRow, sender: str) -> list[SendLimit]:
        # The settings limit the configured provider only, not test messages that go to the capture inbox.
        if row.provider != self._provider:
            return []
        name = get_limit_name(sender)
        limits: list[SendLimit | None] = [self._throttles.get(name), self._senders.get(name), self._probe]
        limits += [self.overall] if self.has_overall_limit else []
        return [limit for limit in limits if limit is not None]

    def _get_all_limits(self) -> list[SendLimit]:
        limits: list[SendLimit] = [self.overall, *self._senders.values(), *self._throttles.values()]
        return [*limits, self._probe] if self._probe is not None else limits

    def _get_group_limits(self) -> list[tuple[str, RateLimiter | AdaptiveThrottle]]:
        return [*self._senders.items(), *self._throttles.items()]

    def _get_configured_limits(self, provider: str, sender: str, recipient: str) -> list[RateLimiter]:
        limit = self._senders.get(get_limit_name(sender))
        return [self.overall, *([limit] if limit else [])] if provider == self._provider else []

    def handle_answer(self, row: LedgerRow, sender: str, error: DeliveryError | None) -> DeliveryError | None:
        """Update throttles from the outcome of a message (`error`, None if accepted), and return its error.

        A RateLimited error throttles the sender and is returned with the seconds to wait.
        """
        if row.provider != self._provider:
            return error
        name = get_limit_name(sender)
        if not isinstance(error, Uncertain | ConnectionFailed):
            self._record_reply()
        if isinstance(error, RateLimited):
            return self._slow_down(name, error)
        throttle = self._throttles.get(name) if error is None else None
        if throttle is not None and throttle.record_accepted(clock.monotonic()):
            del self._throttles[name]
            self._update_is_unlimited()
        return error

    def _slow_down(self, name: str, error: RateLimited) -> RateLimited:
        now = clock.monotonic()
        throttle = self._throttles.get(name)
        if throttle is None:
            throttle = self._throttles[name] = AdaptiveThrottle(name, self._usual, _PAUSE_SECONDS)
            self.is_unlimited = False
        throttle.slow_down(now, error.text, is_long=False)
        throttle.paused_until = max(throttle.paused_until, now + error.seconds)
        return throttle.to_rate_limited(error, now)

    def record_uncertain(self) -> bool:
        """Count an uncertain message, and return whether the caller has to pause the provider.

        That is the case after `MAX_UNCERTAIN` uncertain messages in a row, and then after each further uncertain
        message until the provider is at its full rate again.
        """
        self._uncertain_in_a_row += 1
        if self._uncertain_in_a_row < MAX_UNCERTAIN and self._probe is None:
            return False
        if self._probe is None:
            self._probe = RateLimiter(ALL, RateLimit())
        self._probe.limit = RateLimit(connections=1)
        self._update_is_unlimited()
        return True

    def _record_reply(self) -> None:
        self._uncertain_in_a_row = 0
        if self._probe is None:
            return
        connections = 2 * self._probe.limit.connections
        self._probe.limit = RateLimit(connections=connections)
        if connections >= self._usual:
            self._probe = None
            self._update_is_unlimited()

    def get_status(self) -> SendStatus:
        """Return the throttled senders and the exhausted hourly limits."""
        loop_now, now = clock.monotonic(), clock.now_ms()
        throttled = (throttle.describe(self._provider, loop_now, now) for throttle in [*self._throttles.values()])
        return SendStatus(throttled_groups=tuple(throttled), exhausted_limits=self.get_full_limits())
