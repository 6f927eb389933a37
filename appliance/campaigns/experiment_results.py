"""The results of a campaign's A/B test or holdout: figures of each variant, the decision, and the sample size.

The recipients that are compared are those of each batch as it was assigned, whatever became of their messages: fixed
shares are what makes the evidence valid (docs/decisions.md#22). For the same reason an event counts whether or not its
contact opened or clicked before. Opens and clicks are counted from an index, events from the index of their name.
"""

from typing import Annotated, Any, Literal, NamedTuple, cast

from msgspec import Meta, Struct, convert

from appliance.campaigns import audience, store, variants
from appliance.campaigns.variants import Metric, Setup
from appliance.core import clock
from appliance.core.cache import CostAwareCache
from appliance.core.errors import NotFound
from appliance.events.listing import Moment
from appliance.experiments.assignment import HELD_OUT, WAITING
from appliance.experiments.decision import (
    ConfidenceInterval,
    Decision,
    ExperimentDecision,
    decide_by_amount,
    decide_by_rate,
    describe_decision,
)
from appliance.experiments.evidence import Batches, Counts, TypicalAmount
from appliance.experiments.holdout import measure_holdout, to_interval
from appliance.experiments.sample_size import (
    find_lift_by_amount,
    find_lift_by_rate,
    plan_by_amount,
    plan_by_rate,
)
from appliance.storage.database import rows, scalar
from appliance.storage.models import Campaign, Experiment
from appliance.tracking.orders import CLAMPED_AMOUNT

_MINUTE_MS = 60_000

# What is known about a test, as the API and the report show it. Variants have their numbers from 1.


class VariantResult(Struct):
    """The counts of a variant. `recipients` is the sum of `statuses`."""

    number: Annotated[int, Meta(description="number of the variant, from 1")]
    name: Annotated[str, Meta(description="its name, by default its letter")]
    differences: Annotated[list[str], Meta(description="fields that it has itself; `content`: body and design")]
    recipients: Annotated[int, Meta(description="number of recipients, with those who got it as the winner")]
    statuses: Annotated[dict[str, int], Meta(description="number of its messages by status")]
    opened: Annotated[int, Meta(description="number of recipients who opened it (estimated)")]
    clicked: Annotated[int, Meta(description="number of recipients who clicked")]
    test_recipients: Annotated[int, Meta(description="number of recipients in the test, which are compared")]
    converted: Annotated[int, Meta(description="number of those who did what is counted")]
    amount: Annotated[float, Meta(description="sum of the amounts of their events; 0 if amounts are not compared")]
    value: Annotated[float, Meta(description="what is compared: `converted` or `amount`, per recipient")]
    chance: Annotated[float, Meta(description="probability that it is the best; null before the send")] | None
    loss: Annotated[float, Meta(description="expected loss per recipient of choosing it")] | None


class HoldoutFigures(Struct):
    """The contacts who were held out, compared with all others since the start; the rates count the event."""

    recipients: Annotated[int, Meta(description="number of contacts who got the campaign or wait for it")]
    converted: Annotated[int, Meta(description="number of them who have the event")]
    held_out: Annotated[int, Meta(description="number of contacts who got nothing")]
    held_out_converted: Annotated[int, Meta(description="number of them who have the event")]
    rate: Annotated[float, Meta(description="rate of the event without the held-out")]
    held_out_rate: Annotated[float, Meta(description="rate of the event of the held-out")]
    difference: Annotated[ConfidenceInterval, Meta(description="difference of the rates")]
    people: Annotated[ConfidenceInterval, Meta(description="number of conversions that the campaign caused")]
    lift: Annotated[ConfidenceInterval, Meta(description="the difference as a part of the held-out rate")]
    ends_at: Annotated[Moment, Meta(description="end of the period in which events are counted")] | None


class SampleSize(Struct):
    """What a test of this size can find, at the rate of earlier campaigns."""

    variants: Annotated[int, Meta(description="number of variants")]
    recipients: Annotated[int, Meta(description="number of recipients of each variant, at present")]
    rate: Annotated[float, Meta(description="expected rate of conversions")]
    is_measured: Annotated[bool, Meta(description="whether the rate is that of the last 90 days, not an assumption")]
    smallest_lift: (
        Annotated[float, Meta(description="smallest relative difference that it finds with a probability of 80 %")]
        | None
    )
    needed: Annotated[int, Meta(description="recipients of each variant to find a difference of 20 %")] | None


class ExperimentResult(Struct):
    """The state of an A/B test or holdout: counts that add up, and the conclusion."""

    state: Annotated[
        Literal["draft", "testing", "releasing", "decided"],
        Meta(description="`releasing`: messages are being given to those who wait"),
    ]
    metric: Annotated[Metric, Meta(description="what decides")]
    event: Annotated[str, Meta(description="name of the event that is counted")] | None
    by_amount: Annotated[bool, Meta(description="whether the amounts of the events are compared")]
    ends_at: Annotated[Moment, Meta(description="when the test ends; null before the send")] | None
    is_waiting_for_person: Annotated[bool, Meta(description="whether a person has to choose the winner now")]
    winner: Annotated[int, Meta(description="number of the variant that those who waited get")] | None
    chosen_by: Annotated[str, Meta(description="`service`, or the user or API key that chose the winner")] | None
    chosen_at: Annotated[Moment, Meta(description="when it was decided")] | None
    decision: Annotated[ExperimentDecision, Meta(description="what the counts say; null without a comparison")] | None
    variants: Annotated[list[VariantResult], Meta(description="counts of each variant")]
    waiting: Annotated[int, Meta(description="number of recipients who wait for the winner")]
    held_out: Annotated[int, Meta(description="number of contacts who are held out")]
    skipped: Annotated[int, Meta(description="number of contacts who could not get the campaign when it was sent")]
    audience: Annotated[
        int,
        Meta(
            description="number of contacts in the audience: the sum of all of them, and of those who waited when the "
            "campaign was cancelled"
        ),
    ]
    adds_up: Annotated[bool, Meta(description="whether all sums are right")]
    holdout: Annotated[HoldoutFigures, Meta(description="the effect of sending; null without a holdout")] | None
    sample_size: Annotated[SampleSize, Meta(description="what the test can find; null for a holdout alone")] | None


# Counts.

# The events of the contacts in a time, by variant and batch; a held-out contact has the batch 0.
_COUNT_EVENTS = (
    "WITH span(variant, batch, since, until) AS (VALUES {spans}), person AS ("
    "SELECT m.variant, coalesce(m.variant_batch, 0) AS batch, e.contact_id, total({amount}) AS amount "
    "FROM event e INDEXED BY event_of_name JOIN message m INDEXED BY message_campaign_contact "
    "ON m.campaign_id = :campaign AND m.contact_id = e.contact_id "
    "JOIN span s ON s.variant = m.variant AND s.batch = coalesce(m.variant_batch, 0) "
    "WHERE e.account_id = :account AND e.event = :event AND e.created_at >= :since AND e.created_at < :until "
    "AND e.created_at >= s.since AND e.created_at < s.until AND e.test = :test GROUP BY 1, 2, 3) "
    "SELECT variant, batch, count(*), total(amount), total(amount * amount) FROM person GROUP BY 1, 2"
)
_COUNT_ENGAGED = (
    "SELECT count(*) FROM message INDEXED BY message_variant_{column} "
    "WHERE campaign_id = :campaign AND variant = :variant AND variant_batch = :batch "
    "AND {column}_at NOT NULL AND {column}_at < :until"
)


class _Span(NamedTuple):
    """The time in which a variant of a batch is counted: milliseconds since 1970, the end excluded."""

    variant: int
    batch: int
    since: int
    until: int


def list_starts(setup: Setup, batch: dict[str, Any]) -> list[int]:
    """Return the times in milliseconds at which messages of a stored batch are sent, by variant in order of numbers.

    A variant is counted from this time.
    """
    planned = [batch["at"] + variant.send_after_minutes * _MINUTE_MS for variant in setup.variants]
    return list(batch.get("starts") or planned)


def _list_spans(setup: Setup) -> list[_Span]:
    """Return the time span in which each variant of each batch is counted.

    All spans of a batch are as long as that of the variant that was sent last, so that the variants can be compared.
    """
    now, spans = clock.now_ms(), []
    for batch, stored in enumerate(setup.experiment.batches, 1):
        starts = list_starts(setup, stored)
        age = max(0, now + 1 - max(starts))
        spans += [_Span(number, batch, start, start + age) for number, start in enumerate(starts, 1)]
    return spans


def count_batches(campaign: Campaign, setup: Setup) -> Batches:
    """Return the counts of all variants in all batches of a test that was started."""
    experiment, spans = setup.experiment, _list_spans(setup)
    sizes = {
        (number, batch): size
        for batch, stored in enumerate(experiment.batches, 1)
        for number, size in enumerate(stored["sizes"], 1)
    }
    if experiment.metric == "event":
        counts = _count_events(campaign, experiment, spans)
    else:
        column = "clicked" if experiment.metric == "clicks" else "opened"
        counts = {(span.variant, span.batch): _count_engaged(campaign, column, span) for span in spans}
    batches: list[list[Counts]] = [[] for _ in experiment.batches]
    for span in spans:
        key = (span.variant, span.batch)
        converted, amount, squares = counts.get(key, (0, 0.0, 0.0))
        # The sizes were read before, and a release may have added recipients since.
        batches[span.batch - 1].append(Counts(max(sizes[key], converted), converted, amount, squares))
    return batches


def _count_engaged(campaign: Campaign, column: str, span: _Span) -> tuple[int, float, float]:
    values = {"campaign": campaign.id, "variant": span.variant, "batch": span.batch, "until": span.until}
    return int(scalar(_COUNT_ENGAGED.format(column=column), values)), 0.0, 0.0


def _count_events(
    campaign: Campaign, experiment: Experiment, spans: list[_Span]
) -> dict[tuple[int, int], tuple[int, float, float]]:
    """Return contacts with the event, the sum of their amounts and that of the squares, by variant and batch."""
    if not spans:
        return {}
    sql = _COUNT_EVENTS.format(
        spans=", ".join(f"({', '.join(map(str, span))})" for span in spans),
        amount=CLAMPED_AMOUNT if experiment.by_amount else "0",
    )
    values = {
        "campaign": campaign.id, "account": campaign.account_id, "event": experiment.event, "test": campaign.test,
        "since": min(span.since for span in spans), "until": max(span.until for span in spans),
    }  # fmt: skip
    return {(row[0], row[1]): (row[2], row[3], row[4]) for row in rows(sql, values)}


def is_comparable(campaign: Campaign, experiment: Experiment) -> bool:
    """Return whether the variants can be compared: the sizes of the first batch are known once the audience is."""
    return bool(experiment.batches) and campaign.pending_snapshot is None


def decide(campaign: Campaign, setup: Setup, batches: Batches | None = None) -> Decision | None:
    """Return the decision on a test that was started, from its present counts (`batches`, counted if not given).

    The decision numbers variants from 0. Returns None for a holdout alone, and while the audience is still being
    stored.
    """
    experiment = setup.experiment
    if not variants.is_test(setup) or not is_comparable(campaign, experiment):
        return None
    is_over = experiment.state == "decided" or clock.now_ms() >= experiment.decide_at
    return _decide(experiment, count_batches(campaign, setup) if batches is None else batches, is_over)


def _decide(experiment: Experiment, batches: Batches, is_over: bool) -> Decision:
    if experiment.metric == "event" and experiment.by_amount:
        return decide_by_amount(batches, convert(experiment.typical_amount, TypicalAmount), is_over=is_over)
    return decide_by_rate(batches, is_over=is_over)


def find_safest(decision: Decision) -> int:
    """Return the variant, from 0, of the least expected loss: what to send if the test shows no winner."""
    return min(range(len(decision.losses)), key=lambda variant: (decision.losses[variant], variant))


# The effect of sending.

_COUNT_HOLDOUT = (
    "SELECT held, count(*) FROM (SELECT m.variant = -1 AS held, e.contact_id FROM event e INDEXED BY event_of_name "
    "JOIN message m INDEXED BY message_campaign_contact ON m.campaign_id = :campaign AND m.contact_id = e.contact_id "
    "WHERE e.account_id = :account AND e.event = :event AND e.created_at >= :since AND e.created_at < :until "
    "AND e.test = :test AND m.variant NOT NULL GROUP BY 1, 2) GROUP BY 1"
)


def _get_holdout_end(setup: Setup) -> int:
    """Return when the counting for the holdout ends: recipients of the winner have as much time as the test had."""
    experiment = setup.experiment
    if experiment.winner is None or float(experiment.test_share) + float(experiment.holdout) >= 1:
        return int(experiment.decide_at)
    return int(experiment.decided_at + experiment.decide_after_minutes * _MINUTE_MS)


def _measure_holdout(campaign: Campaign, setup: Setup, ledger: "_Ledger") -> HoldoutFigures | None:
    experiment = setup.experiment
    if not experiment.holdout or not is_comparable(campaign, experiment):
        return None
    ends_at = _get_holdout_end(setup)
    counts = dict(
        rows(
            _COUNT_HOLDOUT,
            {
                "campaign": campaign.id, "account": campaign.account_id, "event": experiment.event,
                "test": campaign.test, "since": experiment.batches[0]["at"],
                "until": min(ends_at, clock.now_ms() + 1),
            },
        )
    )  # fmt: skip
    held_out = Counts(ledger.count(HELD_OUT), counts.get(1, 0))
    treated = Counts(ledger.count_sent() + ledger.count(WAITING), counts.get(0, 0))
    result = measure_holdout(treated, held_out)
    return HoldoutFigures(
        treated.recipients, treated.converted, held_out.recipients, held_out.converted, result.treated_rate,
        result.held_out_rate, to_interval(result.difference), to_interval(result.people), to_interval(result.lift),
        clock.iso(ends_at),
    )  # fmt: skip


# The sample size.

# Rates that are expected without any earlier campaign or event.
_ASSUMED_RATES = {"clicks": 0.02, "opens": 0.25, "event": 0.01}
_PERIOD_MS = 90 * clock.DAY_MS
_PLANNED_LIFT = 0.2
_MIN_EARLIER_MESSAGES = 500
_RECENT_CAMPAIGNS = (
    "SELECT id, sent_count FROM campaign WHERE account_id = ? AND channel = ? AND started_at >= ? AND test = 0 "
    "AND tracking = 1 AND sent_count > 0 ORDER BY created_at DESC LIMIT 20"
)
_COUNT_CONTACTS_WITH_EVENT = (
    "SELECT count(DISTINCT contact_id) FROM (SELECT contact_id FROM event INDEXED BY event_of_name "
    "WHERE account_id = ? AND event = ? AND created_at >= ? AND test = 0 LIMIT ?)"
)
_MAX_EVENTS = 100_000


def estimate_sample(campaign: Campaign, setup: Setup, recipients: int) -> SampleSize | None:
    """Return what a test to `recipients` (who may get the campaign, with the holdout) can find; None for no test."""
    if not variants.is_test(setup):
        return None
    experiment, count = setup.experiment, len(setup.variants)
    share = min(float(experiment.test_share), 1 - float(experiment.holdout))
    each = round(recipients * share) // count  # rounded like the number that the composer shows
    rate, is_measured = _find_rate(campaign, experiment, experiment.metric)
    if experiment.metric == "event" and experiment.by_amount:
        typical = convert(experiment.typical_amount or {"mean": 1.0, "mean_square": 2.0}, TypicalAmount)
        lift = find_lift_by_amount(each, rate, typical, count) if each else None
        needed = plan_by_amount(rate, typical, _PLANNED_LIFT, count)
    else:
        lift = find_lift_by_rate(each, rate, count) if each else None
        needed = plan_by_rate(rate, _PLANNED_LIFT, count)
    return SampleSize(count, each, rate, is_measured, lift, needed)


def estimate_holdout(campaign: Campaign, setup: Setup, recipients: int) -> SampleSize:
    """Return what the holdout of a campaign can show, as the test of two groups of equal size that shows as much.

    `recipients` may get the campaign, with the holdout. The size of each group is the harmonic mean of both.
    """
    share = float(setup.experiment.holdout)
    each = round(2 * recipients * share * (1 - share)) if round(recipients * share) else 0
    rate, is_measured = _find_rate(campaign, setup.experiment, "event")
    lift = find_lift_by_rate(each, rate) if each else None
    return SampleSize(2, each, rate, is_measured, lift, plan_by_rate(rate, _PLANNED_LIFT))


def _find_rate(campaign: Campaign, experiment: Experiment, metric: str) -> tuple[float, bool]:
    """Return the expected rate of a metric, and whether it is that of earlier campaigns or events."""
    measured = _find_earlier_rate(campaign, experiment, metric)
    # No rate can be higher by 20 % if it is near 1.
    return min(measured or _ASSUMED_RATES[metric], 0.8), measured is not None


def _find_earlier_rate(campaign: Campaign, experiment: Experiment, metric: str) -> float | None:
    """Return the rate of the last 90 days, or None with fewer than `_MIN_EARLIER_MESSAGES` messages or contacts."""
    since = clock.now_ms() - _PERIOD_MS
    if metric == "event":
        with_event = scalar(_COUNT_CONTACTS_WITH_EVENT, (campaign.account_id, experiment.event, since, _MAX_EVENTS))
        contacts = scalar("SELECT count(*) FROM contact WHERE account_id = ?", (campaign.account_id,))
        period = experiment.decide_after_minutes * _MINUTE_MS / _PERIOD_MS
        return min(1.0, with_event / contacts * period) if with_event and contacts >= _MIN_EARLIER_MESSAGES else None
    column = "clicked" if metric == "clicks" else "opened"
    sent = engaged = 0
    for campaign_id, count in rows(_RECENT_CAMPAIGNS, (campaign.account_id, campaign.channel, since)):
        sent += count
        engaged += scalar(
            f"SELECT count(*) FROM message INDEXED BY message_{column} WHERE campaign_id = ? AND {column}_at NOT NULL",
            (campaign_id,),
        )
    return min(1.0, engaged / sent) if sent >= _MIN_EARLIER_MESSAGES and engaged else None


# All figures together.


class _Ledger(NamedTuple):
    """The number of messages by variant (None: skipped when the campaign was sent) and status."""

    statuses: dict[int | None, dict[str, int]]

    def count(self, variant: int | None) -> int:
        """Return the number of messages of a variant."""
        return sum(self.statuses.get(variant, {}).values())

    def count_waiting(self) -> int:
        """Return the number of messages that wait for the winner, without those that were cancelled."""
        return self.statuses.get(WAITING, {}).get("held", 0)

    def count_sent(self) -> int:
        """Return the number of messages of all variants, without recipients who wait or are held out."""
        return sum(self.count(variant) for variant in self.statuses if variant is not None and variant > WAITING)


# Reads all messages of a campaign, so it takes a second for a million.
_ledger_cache: CostAwareCache[_Ledger] = CostAwareCache(min_cost_seconds=0.03)


def _load_ledger(campaign: Campaign, state: str) -> _Ledger:
    def load() -> _Ledger:
        statuses: dict[int | None, dict[str, int]] = {}
        for variant, status, count in rows(
            "SELECT variant, status, count(*) FROM message WHERE campaign_id = ? GROUP BY 1, 2", (campaign.id,)
        ):
            statuses.setdefault(variant, {})[status] = count
        return _Ledger(statuses)

    return _ledger_cache.get((campaign.id, state, campaign.pending_snapshot is None), load)


def get_result(account_id: int, campaign_id: int) -> ExperimentResult:
    """Return the figures of a campaign's test or holdout; raises NotFound if it has none."""
    campaign = store.get(account_id, campaign_id)
    setup: Setup | None = campaign.setup
    if setup is None:
        raise NotFound
    experiment, ledger = setup.experiment, _load_ledger(campaign, setup.experiment.state)
    is_started, now = bool(experiment.batches), clock.now_ms()
    batches = count_batches(campaign, setup) if is_comparable(campaign, experiment) else []
    decision = decide(campaign, setup, batches)
    is_over = is_started and now >= experiment.decide_at
    variant_results = [
        _build_variant(campaign, setup, number, batches, decision, ledger) for number in _list_numbers(setup)
    ]
    waiting, held_out, skipped = ledger.count_waiting(), ledger.count(HELD_OUT), ledger.count(None)
    if is_started:
        audience_count = int(campaign.audience_count)
        sendable = audience_count - skipped
    else:
        counts = audience.get_cached_counts(campaign) if audience.is_set(campaign) else None
        audience_count, sendable = (counts.members, counts.sendable) if counts else (0, 0)
    total = sum(variant.recipients for variant in variant_results) + ledger.count(WAITING) + held_out + skipped
    return ExperimentResult(
        cast(Any, experiment.state), cast(Any, experiment.metric), experiment.event, experiment.by_amount,
        clock.iso(experiment.decide_at),
        experiment.state == "testing" and is_over and variants.is_test(setup) and waiting > 0,
        experiment.winner, experiment.chosen_by, clock.iso(experiment.decided_at),
        describe_decision(decision) if decision is not None else None,
        variant_results, waiting, held_out, skipped, audience_count,
        not is_started or (total == audience_count and all(_adds_up(variant) for variant in variant_results)),
        _measure_holdout(campaign, setup, ledger), estimate_sample(campaign, setup, sendable),
    )  # fmt: skip


def _list_numbers(setup: Setup) -> list[int]:
    return [variant.number for variant in setup.variants]


def _adds_up(variant: VariantResult) -> bool:
    return variant.recipients == sum(variant.statuses.values()) and variant.recipients >= variant.test_recipients


def _build_variant(
    campaign: Campaign, setup: Setup, number: int, batches: Batches, decision: Decision | None, ledger: _Ledger
) -> VariantResult:
    variant = variants.get_variant(setup, number)
    counts = [batch[number - 1] for batch in batches]
    return VariantResult(
        number, variants.get_name(variant), variants.list_differences(variant),
        ledger.count(number), ledger.statuses.get(number, {}),
        _count_all_engaged(campaign.id, "opened", number), _count_all_engaged(campaign.id, "clicked", number),
        sum(count.recipients for count in counts), sum(count.converted for count in counts),
        sum(count.amount for count in counts),
        decision.values[number - 1] if decision is not None else 0.0,
        decision.chances[number - 1] if decision is not None else None,
        decision.losses[number - 1] if decision is not None else None,
    )  # fmt: skip


def _count_all_engaged(campaign_id: int, column: str, number: int) -> int:
    return int(
        scalar(
            f"SELECT count(*) FROM message INDEXED BY message_variant_{column} WHERE campaign_id = ? AND variant = ? "
            f"AND {column}_at NOT NULL",
            (campaign_id, number),
        )
    )
