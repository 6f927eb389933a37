"""A/B tests between the send and the winner: contacts that go while they wait, and what delays or ends a test."""

from typing import Any

import pytest
from msgspec import convert

from appliance.accounts.audit import Actor
from appliance.audience.contacts import removal
from appliance.campaigns import audience, audience_snapshot, experiment, experiment_results, send, states, variants
from appliance.campaigns.audience_snapshot import BatchRunner, SnapshotKey
from appliance.campaigns.variants import ExperimentWrite, VariantWrite
from appliance.core import clock, validation
from appliance.events import submit
from appliance.events.submit import EventWrite
from appliance.experiments.assignment import HELD_OUT, Assignment, get_group
from appliance.storage import transactions
from appliance.storage.database import rows, run
from appliance.storage.models import Campaign, Experiment
from tests.domain.home import BY_API, Home


def start(home: Home, people: int, send: dict[str, Any] | None = None, **test: Any) -> Campaign:
    """Send a campaign with a test of two subjects to new contacts, by default to half of them."""
    ids = [home.contact(f"p{number}@example.org").id for number in range(people)]
    draft = home.campaign(home.list_of(*ids).id)
    settings = {"test_share": 0.5, "variants": [VariantWrite(), VariantWrite(subject="B")], **test}
    transactions.write(variants.apply, draft, ExperimentWrite(**settings))
    return home.send(draft, **(send or {}))


def find_experiment(campaign: Campaign) -> Experiment:
    """Return the stored test of a campaign."""
    return Experiment.get(Experiment.campaign == campaign.id)


def order(home: Home, *contact_ids: int, amount: float = 10.0) -> None:
    """Record an order of each contact."""
    for contact_id in contact_ids:
        request = validation.read(EventWrite, {"event": "order", "contact_id": contact_id, "amount": amount})
        transactions.write(submit.submit, home.account_id, submit.prepare(request))


def take_step(campaign: Campaign) -> None:
    """Do what the job of the tests does once a minute."""
    step = experiment.find_next_step(campaign.id)
    if step is not None:
        transactions.write(experiment.take_step, step)


def mark_sent(campaign: Campaign) -> None:
    """Send all messages of the variants."""
    sql = "UPDATE message SET status = 'sent', due_at = NULL, sent_at = ? WHERE campaign_id = ? AND variant > 0"
    transactions.write(run, sql, (clock.now_ms(), campaign.id))


def list_waiting(campaign: Campaign) -> list[int]:
    """Return the contacts who wait for the winner."""
    return [row[0] for row in rows(
        "SELECT contact_id FROM message WHERE campaign_id = ? AND variant = 0 AND status = 'held' ORDER BY id",
        (campaign.id,),
    )]  # fmt: skip


@pytest.mark.parametrize("way", ["delete", "merge"])
def test_who_goes_while_waiting_is_released(home: Home, way: str) -> None:
    """The row of a deleted contact, or of one merged with a contact in the holdout, does not wait for ever."""
    campaign = start(home, 20, test_share=0.3, holdout=0.2, metric="event", event="order")
    contact_id = list_waiting(campaign)[0]
    if way == "delete":
        transactions.write(removal.delete, home.account_id, contact_id)
    else:
        assignment = convert(find_experiment(campaign).assignment, Assignment)
        late = (home.contact(f"late{number}@example.org").id for number in range(100))
        survivor = next(number for number in late if get_group(assignment, number) == HELD_OUT)
        transactions.write(removal.merge, home.account_id, survivor, contact_id, BY_API)
    transactions.write(experiment.choose_winner, home.account_id, campaign.id, 2, Actor("key:1"))
    BatchRunner().run()

    assert list_waiting(campaign) == []
    assert find_experiment(campaign).state == "decided"


def test_who_is_deleted_before_the_last_batch_is_released(home: Home) -> None:
    """An uneven test of everybody leaves no row behind that waits for a winner whom nobody chooses."""
    campaign = start(home, 40, test_share=1, uneven=True, decide_after_minutes=60)
    transactions.write(removal.delete, home.account_id, list_waiting(campaign)[0])
    for _ in range(4):
        home.advance(15 * 60)
        take_step(campaign)
        BatchRunner().run()

    assert list_waiting(campaign) == []
    counted = sum(sum(batch["sizes"]) for batch in find_experiment(campaign).batches)
    assert counted == 39


def test_nothing_is_compared_while_the_audience_is_being_stored(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """An early event of a large send is not an error; the comparison begins when the variants' sizes are known."""
    monkeypatch.setattr("appliance.campaigns.audience_snapshot.MAX_AT_ONCE", 1)
    campaign = start(home, 20, test_share=0.8, holdout=0.2, metric="event", event="order")
    state, key = audience_snapshot.get_state(campaign), SnapshotKey(campaign.id, campaign.started_at)
    assert state is not None and state.row_sql is not None
    kind, group = audience.get_channel_kind(campaign), state.row_sql.group
    count = audience_snapshot.write_audience(key, state.audience, kind, 0, lambda: False, group)
    transactions.write(audience_snapshot.record_list, key, count)
    transactions.run_outside_transaction(audience_snapshot.attach, key)
    transactions.write(audience_snapshot.write_batch, key, 19)
    transactions.run_outside_transaction(audience_snapshot.detach)
    reached = [row[0] for row in rows("SELECT contact_id FROM message WHERE campaign_id = ?", (campaign.id,))]
    order(home, *reached)

    result = experiment_results.get_result(home.account_id, campaign.id)
    assert (result.decision, result.holdout, result.variants[0].chance) == (None, None, None)
    BatchRunner().run()
    result = experiment_results.get_result(home.account_id, campaign.id)
    assert result.decision is not None and result.holdout is not None
    assert sum(variant.converted for variant in result.variants) + result.holdout.held_out_converted == 19


@pytest.mark.parametrize("amount", [1e160, -1e300, 1e-200])
def test_an_absurd_amount_does_not_stop_a_test(home: Home, amount: float) -> None:
    """Any number may be sent as an amount, before the test and during it; the figures stay finite."""
    early = home.contact("early@example.org").id
    order(home, early, amount=amount)
    campaign = start(home, 20, metric="event", event="order", by_amount=True)
    home.advance(1)
    reached = {row[1]: row[0] for row in rows(
        "SELECT contact_id, variant FROM message WHERE campaign_id = ? AND variant > 0", (campaign.id,)
    )}  # fmt: skip
    order(home, reached[1], amount=amount)
    order(home, reached[2])
    home.advance(1)

    result = experiment_results.get_result(home.account_id, campaign.id)
    assert result.decision is not None and result.decision.code == "too_early"
    assert [variant.converted for variant in result.variants] == [1, 1]
    assert abs(result.variants[0].amount) <= 1e9


@pytest.mark.parametrize("share", [0.5, 1])
def test_a_test_does_not_end_before_its_messages_left(home: Home, share: float) -> None:
    """While sending is stopped, the end moves, so that no leader of nothing is chosen; then the test has its time."""
    campaign = start(home, 20, test_share=share, decide_after_minutes=60)
    home.advance(3601)
    take_step(campaign)
    assert find_experiment(campaign).state == "testing"
    mark_sent(campaign)
    home.advance(3500)
    take_step(campaign)
    assert find_experiment(campaign).state == "testing"
    home.advance(101)
    take_step(campaign)
    assert find_experiment(campaign).state == ("releasing" if share < 1 else "decided")


def test_a_cancelled_test_waits_for_nobody(home: Home) -> None:
    """The test of a cancelled campaign ends without a winner, and its messages do not count as waiting."""
    campaign = start(home, 20, decided_by="person")
    transactions.write(states.cancel, home.account_id, campaign.id, Actor("key:1"))
    home.advance(86_401)
    result = experiment_results.get_result(home.account_id, campaign.id)
    assert (result.waiting, result.is_waiting_for_person, result.adds_up) == (0, False, True)
    take_step(campaign)
    assert (find_experiment(campaign).state, find_experiment(campaign).winner) == ("decided", None)


@pytest.mark.parametrize("mean", [50.0, 0.0])
def test_a_person_chooses_whatever_the_counts_say(home: Home, mean: float) -> None:
    """The choice is stored with the comparison, which is made before; it does not need one that succeeds."""
    campaign = start(home, 20, metric="event", event="order", by_amount=True)
    order(home, *(row[0] for row in rows("SELECT contact_id FROM message WHERE variant > 0")))
    home.advance(1)
    sql = "UPDATE experiment SET typical_amount = json_object('mean', ?, 'mean_square', 1.0)"
    transactions.write(run, sql, (mean,))
    decision = experiment.find_decision(home.account_id, campaign.id)
    transactions.write(experiment.choose_winner, home.account_id, campaign.id, 2, Actor("key:1"), decision)
    stored = find_experiment(campaign)

    assert (stored.winner, stored.state) == (2, "releasing")
    assert (stored.decision is not None) == (decision is not None) == (mean > 0)


def test_a_pause_delays_the_time_of_a_later_variant(home: Home) -> None:
    """A variant whose time passed during a pause is counted from its end, for as long as the one that left before."""
    later = [VariantWrite(), VariantWrite(subject="B", send_after_minutes=60)]
    campaign = start(home, 20, test_share=1, metric="event", event="order", variants=later)
    home.advance(60)
    transactions.write(states.pause, home.account_id, campaign.id, Actor("key:1"))
    home.advance(3 * 3600)
    contacts = dict(rows("SELECT variant, contact_id FROM message WHERE campaign_id = ?", (campaign.id,)))
    order(home, contacts[2])
    transactions.write(send.resume, home.account_id, campaign.id, Actor("key:1"))
    home.advance(600)
    order(home, contacts[1])

    def count() -> list[int]:
        result = experiment_results.get_result(home.account_id, campaign.id)
        return [variant.converted for variant in result.variants]

    assert count() == [0, 0]
    home.advance(3 * 3600 + 120)
    assert count() == [1, 0]


def test_the_sample_size_stays_the_same_after_the_start(home: Home) -> None:
    """The share of the variants is one of all who could get the campaign, also once the holdout is drawn."""
    campaign = start(home, 20, test_share=0.5, holdout=0.5, metric="event", event="order")
    sample = experiment_results.get_result(home.account_id, campaign.id).sample_size
    assert sample is not None and sample.recipients == 5
