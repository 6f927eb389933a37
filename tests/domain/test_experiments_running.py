"""A/B tests between the send and the winner: contacts that go while they wait, and what delays or ends a test."""

from typing import Any

import pytest
from msgspec import convert

from appliance.accounts.audit import Actor
from appliance.audience.contacts import removal
from appliance.campaigns import experiment, variants
from appliance.campaigns.audience_snapshot import BatchRunner
from appliance.campaigns.variants import ExperimentWrite, VariantWrite
from appliance.experiments.assignment import HELD_OUT, Assignment, get_group
from appliance.storage import transactions
from appliance.storage.database import rows
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
        step = experiment.find_next_step(campaign.id)
        if step is not None:
            transactions.write(experiment.take_step, step)
        BatchRunner().run()

    assert list_waiting(campaign) == []
    counted = sum(sum(batch["sizes"]) for batch in find_experiment(campaign).batches)
    assert counted == 39
