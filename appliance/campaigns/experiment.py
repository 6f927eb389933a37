"""The A/B test of a campaign while it runs: who gets what, the winner, and the release of messages that wait for it.

`variants.py` is about the test as it is set up, `experiment_results.py` about what its counts say. The groups are
computed by the statement that writes the audience (`audience_snapshot.py`), from the assignment that `start` stores in
the transaction of the send. Nothing else decides who gets which variant, so batches after a kill, a pause or a repeat
follow the same ranges.
"""

import logging
import secrets
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple, cast

from msgspec import Meta, Struct, convert, to_builtins

from appliance.accounts.audit import Actor
from appliance.campaigns import experiment_results, send_times, store, variants
from appliance.campaigns.variants import Setup
from appliance.content.templates import variant_content
from appliance.core import clock, signals
from appliance.core.errors import Invalid, NotFound, Unavailable
from appliance.core.i18n import gettext
from appliance.events import log as event_log
from appliance.events.log import NewEvent
from appliance.experiments import assignment as assignments
from appliance.experiments.assignment import HELD_OUT, Assignment
from appliance.experiments.decision import Decision
from appliance.experiments.evidence import TypicalAmount
from appliance.sending.messages.ledger import DUE_NOW
from appliance.storage.database import connection, fetch_one, rows, scalar
from appliance.storage.models import Account, Campaign, Experiment, Variant
from appliance.storage.transactions import after_commit, require_write_transaction
from appliance.tracking import orders

log = logging.getLogger("campanero.campaigns")
_MINUTE_MS = 60_000

# The start, in the transaction of the send.

# An uneven test is sent in this number of batches of equal size, at equal intervals.
UNEVEN_BATCHES = 4


def start(campaign: Campaign, get_sender: Callable[[Campaign, Account], dict[str, str | None]]) -> None:
    """Fix the content, senders and assignment of a campaign's test, if it has one; `started_at` must be set.

    `get_sender` returns the sender of a campaign (`preflight.get_sender`).
    """
    require_write_transaction()
    setup = variants.find(campaign.id)
    if setup is None:
        return
    experiment = setup.experiment
    for variant in setup.variants:
        if variant.number > 1:
            view = variants.build_view(campaign, variant)
            variant.document = variant_content.join_documents(campaign.template, variant.template)
            variant.sender = get_sender(view, campaign.account)
            variant.save(only=["document", "sender"])
    first_at = campaign.hold_until or campaign.started_at
    assignment = assignments.start_assignment(secrets.randbits(53), experiment.holdout)
    share = _get_batch_share(setup, assignment, 1)
    experiment.assignment = to_builtins(assignments.add_batch(assignment, share, [1] * len(setup.variants)))
    experiment.batches = [{"at": first_at, "sizes": [0] * len(setup.variants)}]
    experiment.held_out_count = experiment.released_id = 0
    experiment.state, experiment.decide_at = "testing", first_at + experiment.decide_after_minutes * _MINUTE_MS
    experiment.next_batch_at = _get_next_batch_at(experiment)
    experiment.typical_amount = to_builtins(_find_typical_amount(campaign, experiment))
    _save(experiment)


def _get_batch_share(setup: Setup, assignment: Assignment, batch: int) -> float:
    """Return the share (0 to 1) of all contacts that get a variant in batch number `batch`, counted from 1."""
    experiment, free = setup.experiment, assignments.get_waiting_share(assignment)
    share = float(experiment.test_share)
    # A test of all contacts takes the whole rest (`free`): because of rounding, the sum of the shares could leave
    # contacts waiting.
    is_everybody = not variants.is_test(setup) or share + float(experiment.holdout) >= 1
    if not experiment.uneven:
        return free if is_everybody else share
    if is_everybody and batch == UNEVEN_BATCHES:
        return free
    return min(free, min(share, 1 - float(experiment.holdout)) / UNEVEN_BATCHES)


def _get_next_batch_at(experiment: Experiment) -> int | None:
    """Return when the next batch of an uneven test is assigned, or None if there is none."""
    count = len(experiment.batches)
    if not experiment.uneven or count >= UNEVEN_BATCHES:
        return None
    first_at = int(experiment.batches[0]["at"])
    return first_at + (int(experiment.decide_at) - first_at) * count // UNEVEN_BATCHES


def _find_typical_amount(campaign: Campaign, experiment: Experiment) -> TypicalAmount:
    """Return what a contact paid in the last 90 days, or a default if no amounts are compared or none were paid."""
    if not experiment.by_amount or experiment.event is None:
        return orders.DEFAULT_TYPICAL
    return orders.find_typical_amount(campaign.account_id, experiment.event)


def _save(experiment: Experiment) -> None:
    experiment.updated_at = max(clock.now_ms(), experiment.updated_at + 1)
    experiment.save()


def reset(campaign_id: int) -> None:
    """Make the test of a campaign whose send was undone a draft again."""
    require_write_transaction()
    setup = variants.find(campaign_id)
    if setup is None:
        return
    experiment = setup.experiment
    experiment.state, experiment.assignment, experiment.typical_amount = "draft", None, None
    experiment.batches, experiment.held_out_count, experiment.decide_at, experiment.next_batch_at = [], 0, None, None
    _save(experiment)
    Variant.update(document=None, sender=None).where(Variant.experiment == experiment.id).execute()


def shift(campaign_id: int, paused_at: int) -> None:
    """Extend a running test by the time for which its campaign was paused; call it when the campaign is resumed.

    `paused_at` is in milliseconds. Variants whose own time came during the pause are sent now, so they are counted from
    now on.
    """
    require_write_transaction()
    setup = variants.find(campaign_id)
    if setup is None or setup.experiment.state == "decided" or setup.experiment.decide_at is None:
        return
    experiment, now = setup.experiment, clock.now_ms()
    experiment.decide_at += now - paused_at
    if experiment.next_batch_at is not None:
        experiment.next_batch_at += now - paused_at
    if any(variant.send_after_minutes for variant in setup.variants):
        batch = experiment.batches[-1]
        starts = experiment_results.list_starts(setup, batch)
        batch["starts"] = [max(start, now) if start > paused_at else start for start in starts]
    _save(experiment)


# The rows of the ledger: the groups as SQL, and the release of rows that wait.


class RowSql(Struct, frozen=True):
    """SQL expressions for the columns of a campaign's message rows that depend on the variant, and their parameters.

    `group` computes the variant from a column of contact ids. `due` is only for rows that do not wait. `parameters` has
    the values of all expressions, and `batch`, the number of the present batch.
    """

    group: str
    sender: str
    reply_to: str
    due: str
    parameters: dict[str, Any]


def build_row_sql(campaign: Campaign, contact_id: str, due: int) -> RowSql | None:
    """Return the SQL for the rows of a campaign's test, or None if it has none.

    `contact_id` is the column of the contact's id. `due` is when variants without a time of their own are due.
    """
    setup = variants.find(campaign.id)
    if setup is None or setup.experiment.assignment is None:
        return None
    return _build_row_sql(campaign, setup, contact_id, due)


def _build_row_sql(campaign: Campaign, setup: Setup, contact_id: str, due: int, column: str = "variant") -> RowSql:
    experiment, parameters = setup.experiment, {"due": due, "batch": len(setup.experiment.batches)}
    is_local = campaign.local_time is not None
    senders, replies, times = [], [], []
    for variant in setup.variants:
        sender = variant.sender or campaign.sender
        number = variant.number
        parameters |= {
            f"sender{number}": sender["email"] or sender.get("number"), f"reply{number}": sender["reply_to"],
            f"due{number}": _get_due(campaign, variant, due),
        }  # fmt: skip
        senders.append(f"WHEN {number} THEN :sender{number}")
        replies.append(f"WHEN {number} THEN :reply{number}")
        # A time of its own begins at the local time, if there is one.
        parameters[f"delay{number}"] = variant.send_after_minutes * _MINUTE_MS
        times.append(f"WHEN {number} THEN {f'local_due + :delay{number}' if is_local else f':due{number}'}")
    return RowSql(
        assignments.build_group_sql(convert(experiment.assignment, Assignment), contact_id),
        f"CASE {column} {' '.join(senders)} ELSE :sender1 END",
        f"CASE {column} {' '.join(replies)} ELSE :reply1 END",
        f"coalesce(CASE {column} {' '.join(times)} END, :due)",
        parameters,
    )


def _get_due(campaign: Campaign, variant: Variant, due: int) -> int:
    if not variant.send_after_minutes:
        return due
    return int(campaign.hold_until or campaign.started_at) + variant.send_after_minutes * _MINUTE_MS


_COUNT_NEW = (
    "SELECT variant, count(*) FROM message NOT INDEXED WHERE id > ? AND id <= ? AND campaign_id = ? "
    "AND variant NOT NULL GROUP BY variant"
)


def count_new_rows(campaign_id: int, after_id: int, last_id: int) -> dict[int, int]:
    """Return the number of messages by variant with ids above `after_id` and up to `last_id`."""
    return dict(rows(_COUNT_NEW, (after_id, last_id, campaign_id)))


def store_sizes(campaign_id: int, counts: Mapping[int, int]) -> None:
    """Store the sizes of the first batch and of the holdout, from the number of messages by variant.

    Call it once the audience is fixed.
    """
    require_write_transaction()
    experiment = Experiment.get(Experiment.campaign == campaign_id)
    experiment.held_out_count = counts.get(HELD_OUT, 0)
    sizes = experiment.batches[0]["sizes"]
    experiment.batches[0]["sizes"] = [counts.get(number, 0) for number in range(1, len(sizes) + 1)]
    experiment.save(only=["held_out_count", "batches"])


def store_unfinished_sizes(campaign: Campaign) -> None:
    """Store the sizes of a test whose campaign ends while its audience is still being fixed."""
    state = campaign.pending_snapshot
    if state is not None and state.get("row_sql") is not None:
        store_sizes(campaign.id, {int(number): count for number, count in state["counts"].items()})


# The condition on `run_id` lets the index of open messages find those without a time.
_WAITING_IDS = (
    "SELECT id FROM message INDEXED BY message_due WHERE campaign_id = :campaign AND due_at IS NULL "
    "AND run_id IS NULL AND status IN ('queued', 'held') AND variant = 0 AND id > :after ORDER BY id LIMIT :size"
)
# A contact who was deleted has no position, and one who was merged may have the position of the holdout. Their rows get
# the variant `:rest` when all who wait are released, outside of the comparison; else they would wait forever.
_RELEASE = (
    "WITH g AS MATERIALIZED (SELECT id AS message_id, {sql.group} AS variant "
    "FROM message NOT INDEXED WHERE id > :after AND id <= :last AND campaign_id = :campaign AND variant = 0 "
    "AND status = 'held' AND due_at IS NULL), "
    "p AS MATERIALIZED (SELECT message_id, iif(variant > 0, variant, :rest) AS variant, "
    "iif(variant > 0, :new_batch, NULL) AS batch FROM g) "
    "UPDATE message SET variant = p.variant, variant_batch = p.batch, status = 'queued', "
    f"due_at = coalesce({send_times.NEXT_DUE_SQL}, :due), "
    "sender = {sql.sender}, reply_to = {sql.reply_to}, updated_at = :now FROM p "
    "WHERE message.id = p.message_id AND p.variant > 0"
)
# The variant of rows without a position if an uneven test has no winner to send
_FIRST_VARIANT = 1


def has_pending_release() -> bool:
    """Return whether any campaign is releasing messages to the recipients who waited for its test."""
    return bool(list_pending_releases())


def list_pending_releases() -> list[int]:
    """Return the ids of the campaigns whose waiting messages are to be released."""
    return [row[0] for row in rows("SELECT campaign_id FROM experiment WHERE state = 'releasing' ORDER BY campaign_id")]


def release_batch(campaign_id: int, size: int) -> int:
    """Give up to `size` waiting recipients the variant of the stored assignment; return how many were looked at.

    Rows that the assignment leaves waiting keep waiting. If none is left to look at, the test goes on, or ends if it
    has a winner, and 0 is returned.
    """
    require_write_transaction()
    setup = variants.find(campaign_id)
    if setup is None or setup.experiment.state != "releasing":
        return 0
    campaign, experiment = Campaign.get_by_id(campaign_id), setup.experiment
    after = experiment.released_id
    ids = [row[0] for row in rows(
        _WAITING_IDS, {"campaign": campaign_id, "after": after, "size": size}
    )]  # fmt: skip
    if not ids or campaign.phase == "cancelled":
        experiment.state = "testing" if experiment.winner is None else "decided"
        experiment.released_id = 0
        _save(experiment)
        return 0
    sql = _build_row_sql(campaign, setup, "contact_id", DUE_NOW, "p.variant")
    batch = None if experiment.winner is not None else len(experiment.batches)
    scope = {"campaign": campaign_id, "after": after, "last": ids[-1]}
    is_waited_for = assignments.get_waiting_share(convert(experiment.assignment, Assignment)) > 0
    rest = experiment.winner or (None if is_waited_for else _FIRST_VARIANT)
    connection().execute(
        _RELEASE.format(sql=sql),
        {**sql.parameters, **scope, "new_batch": batch, "rest": rest, "now": clock.now_ms()},
    )  # fmt: skip
    if batch is not None:
        _count_released(experiment, scope, batch)
    experiment.released_id = ids[-1]
    experiment.save(only=["released_id", "batches"])
    return len(ids)


def _count_released(experiment: Experiment, scope: dict[str, Any], batch: int) -> None:
    counts = dict(
        rows(
            "SELECT variant, count(*) FROM message NOT INDEXED WHERE id > :after AND id <= :last "
            "AND campaign_id = :campaign AND variant_batch = :batch GROUP BY 1",
            {**scope, "batch": batch},
        )
    )
    sizes = experiment.batches[-1]["sizes"]
    experiment.batches[-1]["sizes"] = [size + counts.get(number, 0) for number, size in enumerate(sizes, 1)]


# The decision.


class ChooseWinner(Struct):
    """The choice of a variant for all recipients who wait."""

    variant: Annotated[int, Meta(ge=1, le=assignments.MAX_VARIANTS, description="number of the variant, from 1")]


def find_decision(account_id: int, campaign_id: int) -> Decision | None:
    """Return what the counts of a test say, for `choose_winner`; call it outside of a transaction, because it is slow.

    The decision is only recorded beside the user's choice, so an error is logged and None is returned. Raises NotFound
    for an unknown campaign.
    """
    campaign = store.get(account_id, campaign_id)
    try:
        return experiment_results.decide(campaign, campaign.setup) if campaign.setup is not None else None
    except (ArithmeticError, ValueError):
        log.exception("experiments: comparing failed campaign=%s", campaign_id)
        return None


def choose_winner(
    account_id: int, campaign_id: int, number: int, by: Actor, decision: Decision | None = None
) -> Campaign:
    """Send a variant to all recipients who wait for the winner, on a user's decision; return the campaign.

    `decision` is what the counts said (`find_decision`). Raises NotFound; Invalid for an unknown variant (`variant`),
    or unless the test is running (`invalid_transition`); Unavailable while the audience is still being stored.
    """
    require_write_transaction()
    campaign = store.get(account_id, campaign_id)
    setup: Setup | None = campaign.setup
    if setup is None or not variants.is_test(setup):
        raise NotFound
    if number > len(setup.variants):
        raise Invalid({"variant": [gettext("must exist")]})
    if setup.experiment.state == "releasing" or campaign.pending_snapshot is not None:
        raise Unavailable(gettext("The recipients of this test are still being stored."), "unavailable", retry_after=2)
    if setup.experiment.state != "testing" or campaign.phase in ("holding", "cancelled"):
        raise Invalid(
            {"base": [gettext("this test is not running")]}, reason="invalid_transition",
            **cast(Any, {"from": setup.experiment.state, "to": "decided", "allowed": []}),
        )  # fmt: skip
    _finish(campaign, setup, number, by.name, decision)
    return store.get(account_id, campaign_id)


def _finish(
    campaign: Campaign, setup: Setup, winner: int | None, chosen_by: str | None, decision: Decision | None
) -> None:
    """Store the end of a test, and start to release the winner, if there is one, to the recipients who wait.

    The end of an A/B test, not of a holdout alone, is an event (`campaign_test_decided`).
    """
    experiment = setup.experiment
    experiment.winner, experiment.chosen_by, experiment.decided_at = winner, chosen_by, clock.now_ms()
    experiment.decision = to_builtins(decision)
    experiment.state, experiment.next_batch_at = "decided", None
    if winner is not None:
        assignment = convert(experiment.assignment, Assignment)
        experiment.assignment = to_builtins(assignments.assign_waiting(assignment, winner))
        _start_release(experiment)
    _save(experiment)
    if variants.is_test(setup):
        result = None if decision is None else decision.code
        data = {"campaign_id": campaign.id, "winner": winner, "chosen_by": chosen_by, "result": result}
        event_log.record(
            NewEvent(
                campaign.account_id, "campaign_test_decided", data=data, resource_uid=f"campaign:{campaign.id}",
                resource_name=campaign.name, test=campaign.test,
            )
        )  # fmt: skip


def _start_release(experiment: Experiment) -> None:
    send_times.store_next_times(experiment.campaign)
    experiment.state, experiment.released_id = "releasing", 0
    after_commit(lambda: signals.wake("audiences"))


class NextStep(NamedTuple):
    """The next step of a running test, computed outside of the write transaction.

    `updated_at` is that of the test when it was read. With `weights` the next batch is assigned, with `later_end` the
    end of the test moves to that time. Otherwise the test ends: with a winner, or without one.
    """

    campaign_id: int
    updated_at: int
    winner: int | None
    decision: Decision | None
    weights: tuple[float, ...] | None = None
    later_end: int | None = None


# Messages that were tried and deferred do not count: a few of them may take days.
_LAST_UNTRIED = (
    "SELECT max(coalesce(due_at, 0)) FROM message INDEXED BY message_due WHERE campaign_id = ? "
    "AND run_id IS NULL AND status IN ('queued', 'held') AND variant > 0 AND attempts = 0"
)
_RUNNING = (
    "SELECT x.campaign_id FROM experiment x JOIN campaign c ON c.id = x.campaign_id "
    "WHERE x.state = 'testing' AND c.phase IN ('sending', 'completed', 'cancelled') AND c.deleted_at IS NULL "
    "AND c.pending_snapshot IS NULL AND c.pending_end IS NULL ORDER BY x.decide_at"
)


def has_running() -> bool:
    """Return whether any test is running."""
    return fetch_one("SELECT 1 FROM experiment WHERE state = 'testing' LIMIT 1") is not None


def list_running() -> list[int]:
    """Return the ids of the campaigns whose test is running and may be decided, the first to end first."""
    return [row[0] for row in rows(_RUNNING)]


def find_next_step(campaign_id: int) -> NextStep | None:
    """Return the next step of a running test, or None if the test continues; call it outside of a transaction.

    A clear winner ends the test at once if the service decides. At its end the leader is chosen, or the test waits for
    a person to decide, as its settings say. If the variants have different times, nothing is decided before the end. If
    messages of the test could not leave until the end, because sending was stopped or slow, the test lasts as long
    again. The test of a cancelled campaign ends without a winner.
    """
    campaign = Campaign.get_by_id(campaign_id)
    setup = variants.find(campaign_id)
    if setup is None or setup.experiment.state != "testing":
        return None
    experiment, now = setup.experiment, clock.now_ms()
    later_end = _find_later_end(campaign, experiment) if now >= experiment.decide_at else None
    is_over = now >= experiment.decide_at and later_end is None
    if not variants.is_test(setup):
        step = NextStep(campaign_id, experiment.updated_at, None, None, later_end=later_end)
        return step if now >= experiment.decide_at else None
    decision = experiment_results.decide(campaign, setup)
    if decision is None:
        return None
    step = NextStep(campaign_id, experiment.updated_at, None, decision)
    if campaign.phase == "cancelled":
        return step
    is_waited_for = assignments.get_waiting_share(convert(experiment.assignment, Assignment)) > 0
    can_end = is_over or not any(variant.send_after_minutes for variant in setup.variants)
    if experiment.decided_by == "service" and can_end and decision.code == "winner":
        return step._replace(winner=decision.leader + 1)
    if later_end is not None:
        return step._replace(later_end=later_end)
    if is_over and not is_waited_for:
        return step._replace(winner=decision.leader + 1 if decision.code == "winner" else None)
    if is_over and experiment.decided_by == "service" and experiment.too_close == "leader":
        return step._replace(winner=experiment_results.find_safest(decision) + 1)
    if not is_over and experiment.next_batch_at is not None and now >= experiment.next_batch_at:
        batches = experiment_results.count_batches(campaign, setup)
        return step._replace(weights=assignments.choose_weights(batches, len(setup.variants), experiment.by_amount))
    return None


def _find_later_end(campaign: Campaign, experiment: Experiment) -> int | None:
    """Return the end of a test whose time is over before all its messages left, or None if all were tried."""
    last = scalar(_LAST_UNTRIED, (campaign.id,))
    return None if last is None else max(clock.now_ms(), last) + experiment.decide_after_minutes * _MINUTE_MS


def take_step(step: NextStep) -> None:
    """Do what `find_next_step` returned, unless the test has changed meanwhile."""
    require_write_transaction()
    setup = variants.find(step.campaign_id)
    if setup is None or setup.experiment.state != "testing" or setup.experiment.updated_at != step.updated_at:
        return
    campaign = Campaign.get_by_id(step.campaign_id)
    if campaign.phase not in ("sending", "completed", "cancelled"):
        return
    if step.later_end is not None:
        setup.experiment.decide_at = step.later_end
        _save(setup.experiment)
        return
    if step.weights is None:
        _finish(campaign, setup, step.winner, "service" if step.winner is not None else None, step.decision)
        return
    experiment = setup.experiment
    assignment = convert(experiment.assignment, Assignment)
    share = _get_batch_share(setup, assignment, len(experiment.batches) + 1)
    experiment.assignment = to_builtins(assignments.add_batch(assignment, share, step.weights))
    experiment.batches.append({"at": clock.now_ms(), "sizes": [0] * len(setup.variants)})
    experiment.next_batch_at = _get_next_batch_at(experiment)
    _start_release(experiment)
    _save(experiment)
