"""The time of a campaign, which is set in one of three ways.

`scheduled_at` is the same moment for all recipients, `local_time` a time on the clock of each recipient (with
`best_hour_until` an hour of their own), and `repeat` a rule of dates. Setting one clears the others.
"""

from typing import Annotated, NamedTuple, Protocol

from msgspec import UNSET, Meta, UnsetType

from appliance.campaigns import repeats
from appliance.campaigns.repeats import RepeatField, RepeatWrite
from appliance.core import clock, time_zones
from appliance.core.errors import Faults, Invalid
from appliance.core.i18n import gettext
from appliance.core.validation import LocalTime
from appliance.storage.models import Campaign
from appliance.storage.transactions import require_write_transaction

LocalTimeWrite = Annotated[
    LocalTime,
    Meta(
        description="when to send, such as `2026-12-01T09:00`, on the clock of each recipient; replaces `repeat` and "
        "`scheduled_at`, which is then the first moment at which it is that time anywhere. null: no local time"
    ),
]
BestHourWrite = Annotated[
    int,
    Meta(
        ge=1, le=24,
        description="until which hour of the day of `local_time` to send, such as `20`, to each recipient at the best "
        "hour of their own from `local_time` on, by their clicks. It needs a `local_time` at a full hour in the same "
        "request. null: all get it at `local_time`",
    ),
]  # fmt: skip
RepetitionWrite = Annotated[
    RepeatWrite,
    Meta(
        description="dates at which a copy is sent; replaces `local_time` and `scheduled_at`, which is then the next "
        "date. null: no repetition"
    ),
]


class TimesWrite(Protocol):
    """The times of a request; a send has no `repeat`."""

    scheduled_at: int | None | UnsetType
    local_time: str | None | UnsetType
    best_hour_until: int | None | UnsetType


class Times(NamedTuple):
    """When a campaign is to be sent.

    With `local_time`, `scheduled_at` is the first moment at which it is that time; with a repetition, the next date.
    """

    scheduled_at: int | None
    local_time: str | None
    best_hour_until: int | None = None


def get_repeat(request: TimesWrite) -> RepeatField:
    """Return the repetition of a request."""
    repeat: RepeatField = getattr(request, "repeat", UNSET)
    return repeat


def get_times(campaign: Campaign, request: TimesWrite) -> Times:
    """Return the times of a campaign after a request: the one that is sent replaces the others."""
    repeat = get_repeat(request)
    if isinstance(repeat, RepeatWrite):
        is_new = repeats.would_change(campaign.id, repeat)
        return Times(repeats.find_first(campaign.account_id, repeat) if is_new else campaign.scheduled_at, None)
    if isinstance(request.local_time, str):
        first_at = time_zones.find_first_and_last(request.local_time)[0]
        return Times(first_at, request.local_time, request.best_hour_until or None)
    if request.scheduled_at is not UNSET:
        return Times(request.scheduled_at, None)
    is_local_ended = request.local_time is None and campaign.local_time is not None
    if is_local_ended or (repeat is None and repeats.find(campaign.id) is not None):
        return Times(None, None)
    until = None if request.best_hour_until is None else campaign.best_hour_until
    return Times(campaign.scheduled_at, campaign.local_time, until)


def _ends_repetition(campaign: Campaign, request: TimesWrite) -> bool:
    """Return whether a request removes the repetition of a campaign, or sets another time.

    A `scheduled_at` of null, or equal to the stored one, is not another time.
    """
    if repeats.find(campaign.id) is None or isinstance(get_repeat(request), RepeatWrite):
        return False
    is_moved = isinstance(request.scheduled_at, int) and request.scheduled_at != campaign.scheduled_at
    return get_repeat(request) is None or isinstance(request.local_time, str) or is_moved


def changes_time(campaign: Campaign, request: TimesWrite) -> bool:
    """Return whether a request would change when a campaign is sent."""
    return (
        get_times(campaign, request) != Times(campaign.scheduled_at, campaign.local_time, campaign.best_hour_until)
        or repeats.would_change(campaign.id, get_repeat(request))
        or _ends_repetition(campaign, request)
    )


def find_start(campaign: Campaign, request: TimesWrite) -> int | None:
    """Return when a campaign would start if it were sent with a valid request, in Unix milliseconds; None: at once.

    A campaign that repeats starts at its next date, even if the stored one has passed.
    """
    repeat = repeats.find(campaign.id)
    is_kept = repeat is not None and not _ends_repetition(campaign, request)
    if repeat is not None and is_kept and not repeats.would_change(campaign.id, get_repeat(request)):
        return repeat.find_next(clock.now_ms())
    return get_times(campaign, request).scheduled_at


def set_times(campaign: Campaign, request: TimesWrite) -> None:
    """Set the times of a campaign from a validated request, and its attribute `repeat`; the caller saves the campaign.

    Raises Invalid if no date of a new repetition is left.
    """
    require_write_transaction()
    times, is_ended = get_times(campaign, request), _ends_repetition(campaign, request)
    campaign.scheduled_at, campaign.local_time, campaign.best_hour_until = times
    repeats.apply(campaign, None if is_ended else get_repeat(request))
    campaign.repeat = repeats.find(campaign.id)


def refuse_now(campaign: Campaign, request: TimesWrite) -> None:
    """Raise Invalid if a request for an immediate send (`scheduled_at` null) is for a repeating campaign."""
    if request.scheduled_at is None and not isinstance(request.local_time, str) and repeats.find(campaign.id):
        raise Invalid({"scheduled_at": [gettext("is set by the repetition")]})


def validate(account_id: int, request: TimesWrite, faults: Faults) -> None:
    """Add the errors of a repetition, and of times that exclude each other, to `faults`."""
    repeat, moment = get_repeat(request), request.scheduled_at
    has_local_time = isinstance(request.local_time, str)
    has_both = has_local_time and isinstance(moment, int)
    # A campaign as it was read has `scheduled_at` besides the time that sets it.
    if has_both and moment != time_zones.find_first_and_last(str(request.local_time))[0]:
        faults.add("local_time", gettext("give either `scheduled_at` or `local_time`, not both"))
    _validate_best_hour(request, faults)
    if not isinstance(repeat, RepeatWrite):
        return
    repeats.validate(account_id, repeat, faults)
    if has_local_time:
        text = gettext("give either `repeat` or `local_time`, not both")
        faults.add("repeat", text)
        faults.add("local_time", text)
    is_valid = isinstance(repeat.every, str) and isinstance(repeat.at, str)
    is_valid = is_valid and not any(path.startswith("repeat.") for path in faults.fields)
    if isinstance(moment, int) and is_valid and moment != repeats.find_first(account_id, repeat):
        text = gettext("give either `repeat` or `scheduled_at`, not both")
        faults.add("repeat", text)
        faults.add("scheduled_at", text)


def _validate_best_hour(request: TimesWrite, faults: Faults) -> None:
    if not isinstance(request.best_hour_until, int):
        return
    if not isinstance(request.local_time, str):
        faults.add("best_hour_until", gettext("needs a `local_time` in the same request"))
        return
    local = time_zones.parse_local_time(request.local_time)
    if local.minute:
        faults.add("local_time", gettext("must be a full hour, such as 08:00, with `best_hour_until`"))
    if request.best_hour_until <= local.hour:
        faults.add("best_hour_until", gettext("must be after the hour of `local_time`"))
