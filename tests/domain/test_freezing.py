"""Audiences frozen in chunks: everybody on the list has exactly one row, whatever becomes of people meanwhile."""

import pytest

from appliance.audience.contacts import removal
from appliance.campaigns import audience, audience_snapshot, store
from appliance.campaigns.audience_snapshot import SnapshotKey
from appliance.campaigns.batches import BatchRunner, next_batch_size
from appliance.storage import transactions
from appliance.storage.database import rows
from appliance.storage.models import Campaign
from tests.domain.home import BY_API, Home


@pytest.fixture
def begun(home: Home, monkeypatch: pytest.MonkeyPatch) -> tuple[Campaign, list[int]]:
    """A campaign to six people that counts as large, of whom the first two have their rows; and the six."""
    monkeypatch.setattr("appliance.campaigns.audience_snapshot.MAX_AT_ONCE", 1)
    people = [home.contact(f"a{number}@example.org").id for number in range(6)]
    made = home.send(home.campaign(home.list_of(*people).id))
    state, send = audience_snapshot.get_state(made), SnapshotKey(made.id, made.started_at)
    assert state is not None
    count = audience_snapshot.write_audience(send, state.audience, audience.get_channel_kind(made), 0, lambda: False)
    transactions.write(audience_snapshot.record_list, send, count)
    transactions.run_outside_transaction(audience_snapshot.attach, send)
    transactions.write(audience_snapshot.write_batch, send, 2)
    transactions.run_outside_transaction(audience_snapshot.detach)
    return made, people


@pytest.mark.parametrize("stays", [5, 0])
def test_people_may_be_merged_while_their_rows_are_written(
    stays: int, begun: tuple[Campaign, list[int]], home: Home
) -> None:
    """One who has a row and one who has none become one person, either way: they get one message, the others theirs."""
    campaign, people = begun
    transactions.write(removal.merge, home.account_id, people[stays], people[5 - stays], BY_API)
    BatchRunner().run()
    found = rows(
        "SELECT contact_id, status, skip_reason FROM message WHERE campaign_id = ? ORDER BY id", (campaign.id,)
    )
    assert found == [
        (people[stays], "queued", None),
        *((number, "queued", None) for number in people[1:5]),
        (None, "skipped", "contact_deleted"),
    ]
    done = store.get(home.account_id, campaign.id)
    assert done.pending_snapshot is None and done.audience_count == 6


@pytest.mark.parametrize(
    ("worked", "whole", "grows"),
    [
        (0.002, 0.002, True),
        (0.002, 0.040, True),  # most of it was waiting for a turn, which fewer rows would not shorten
        (0.002, 0.300, False),  # so long a disk takes
        (0.016, 0.016, False),
    ],
)
def test_chunks_are_as_large_as_their_work_allows(worked: float, whole: float, grows: bool) -> None:
    """What the writer works decides how many rows go together; waiting beside other threads makes them no fewer."""
    after = next_batch_size(400, worked, whole)
    assert after > 400 if grows else 50 <= after < 400
