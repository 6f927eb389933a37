"""Audience snapshots in batches: each recipient has exactly one row, also if contacts are merged meanwhile."""

import sqlite3
from contextlib import closing

import pytest

from appliance.audience.contacts import removal
from appliance.audience.segments import store as segments
from appliance.audience.segments.store import SegmentCreate
from appliance.campaigns import audience, audience_snapshot, store
from appliance.campaigns.audience_snapshot import BatchRunner, SnapshotKey, next_batch_size
from appliance.core import validation
from appliance.events import log
from appliance.events.log import NewEvent
from appliance.storage import transactions
from appliance.storage.database import rows
from appliance.storage.models import Campaign
from tests.domain.home import BY_API, Home


@pytest.fixture
def partial_snapshot(home: Home, monkeypatch: pytest.MonkeyPatch) -> tuple[Campaign, list[int]]:
    """A campaign to six contacts, of whom the first two have their rows, and the ids of the six."""
    monkeypatch.setattr("appliance.campaigns.audience_snapshot.MAX_AT_ONCE", 1)
    contact_ids = [home.contact(f"a{number}@example.org").id for number in range(6)]
    campaign = home.send(home.campaign(home.list_of(*contact_ids).id))
    state, key = audience_snapshot.get_state(campaign), SnapshotKey(campaign.id, campaign.started_at)
    assert state is not None
    count = audience_snapshot.write_audience(key, state.audience, audience.get_channel_kind(campaign), 0, lambda: False)
    transactions.write(audience_snapshot.record_list, key, count)
    transactions.run_outside_transaction(audience_snapshot.attach, key)
    transactions.write(audience_snapshot.write_batch, key, 2)
    transactions.run_outside_transaction(audience_snapshot.detach)
    return campaign, contact_ids


def test_a_slow_audience_is_selected_outside_of_the_writer(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few contacts with many events may take as long to select as millions (T22)."""
    contact = home.contact("often@example.org").id
    transactions.write(log.record_many, [NewEvent(home.account_id, "viewed", contact, {"page": "/"})] * 3_000)
    condition = {"event": "viewed", "at_least": 1, "where": [{"name": "event.page", "predicate": "cont", "value": "x"}]}
    body = {"name": "Often", "filters": [{"name": "event", "predicate": "performed", "value": condition}]}
    segment = transactions.write(segments.create, home.account_id, validation.read(SegmentCreate, body))
    campaign = home.campaign(home.list_of(contact).id)
    campaign.trigger.segment_id = segment.id
    campaign.trigger.save()
    quick = audience_snapshot.measure_audience(campaign)
    assert quick is not None and not quick.is_large
    other = quick._replace(trigger=())
    monkeypatch.setattr("appliance.campaigns.audience_snapshot._SLOW_QUERY_SECONDS", 0)
    slow = audience_snapshot.measure_audience(campaign)
    assert slow is not None and slow.is_large
    transactions.write(audience_snapshot.begin_snapshot, campaign, "smtp", other)
    assert campaign.pending_snapshot is not None


@pytest.mark.parametrize("survivor", [5, 0])
def test_a_merge_during_the_snapshot_gives_one_message(
    survivor: int, partial_snapshot: tuple[Campaign, list[int]], home: Home
) -> None:
    """If a contact with a row and one without are merged, they get one message, and the others one each."""
    campaign, contact_ids = partial_snapshot
    transactions.write(removal.merge, home.account_id, contact_ids[survivor], contact_ids[5 - survivor], BY_API)
    BatchRunner().run()
    message_rows = rows(
        "SELECT contact_id, status, skip_reason FROM message WHERE campaign_id = ? ORDER BY id", (campaign.id,)
    )
    assert message_rows == [
        (contact_ids[survivor], "queued", None),
        *((number, "queued", None) for number in contact_ids[1:5]),
        (None, "skipped", "contact_deleted"),
    ]
    updated = store.get(home.account_id, campaign.id)
    assert updated.pending_snapshot is None and updated.audience_count == 6


def test_an_upgrade_during_the_snapshot_writes_the_rest(
    partial_snapshot: tuple[Campaign, list[int]], home: Home
) -> None:
    """The recipient list of an earlier version, which had no variants, is written again from the last row."""
    campaign, contact_ids = partial_snapshot
    path = audience_snapshot.get_path(SnapshotKey(campaign.id, campaign.started_at))
    with closing(sqlite3.connect(path)) as recipient_list:
        recipient_list.execute("ALTER TABLE person DROP COLUMN variant")
    earlier_path = path.rename(path.with_suffix(".recipients"))
    BatchRunner().run()
    message_rows = rows("SELECT contact_id, status FROM message WHERE campaign_id = ? ORDER BY id", (campaign.id,))
    assert message_rows == [(number, "queued") for number in contact_ids]
    assert store.get(home.account_id, campaign.id).pending_snapshot is None
    assert not earlier_path.exists()


@pytest.mark.parametrize(
    ("work_seconds", "total_seconds", "grows"),
    [
        (0.002, 0.002, True),
        (0.002, 0.040, True),  # mostly waiting for a turn, which fewer rows would not shorten
        (0.002, 0.300, False),  # a slow disk takes this long
        (0.016, 0.016, False),
    ],
)
def test_next_batch_size_follows_the_writers_work(work_seconds: float, total_seconds: float, grows: bool) -> None:
    """The time that the writer works sets the batch size; waiting for its turn does not reduce it."""
    new_size = next_batch_size(400, work_seconds, total_seconds)
    assert new_size > 400 if grows else 50 <= new_size < 400
