"""Background counts of segment members: their result, sample and cancellation."""

import pytest

from appliance.audience.segments import members
from tests.domain.home import Home

YES = [{"name": "contact_data.n", "predicate": "gteq", "value": 10}]


@pytest.fixture
def contacts_account(home: Home) -> Home:
    """Return an installation with 30 contacts, each with a number in its data."""
    for number in range(30):
        home.upsert(email=f"p{number}@example.com", data={"n": number})
    return home


def test_a_count_returns_number_and_sample(contacts_account: Home) -> None:
    """All matches are counted; the sample is of matches, the same for the same seed and another for another seed."""
    samples = []
    for requester, seed in (("one", 1), ("two", 1), ("three", 2)):
        count = members.start_count(contacts_account.account_id, requester, YES, seed)
        assert count.wait(10) and count.error is None
        assert (count.match_count, count.contact_count) == (20, 30)
        assert len(set(count.sample)) == members.SAMPLE_SIZE
        nodes = members.parse_filters(contacts_account.account_id, YES)
        matches = members.fetch_some(
            contacts_account.account_id, nodes, members.build_scope(contacts_account.account_id), 30
        )
        assert set(count.sample) <= set(matches)
        samples.append(count.sample)
    assert samples[0] == samples[1] != samples[2]


def test_a_count_without_filters_counts_all_contacts(contacts_account: Home) -> None:
    """No filters match all contacts, and the sample is drawn from them."""
    count = members.start_count(contacts_account.account_id, "one", [])
    assert count.wait(10)
    assert (count.match_count, len(set(count.sample))) == (30, members.SAMPLE_SIZE)


def test_a_new_count_cancels_the_requesters_old_one(contacts_account: Home) -> None:
    """A new count with other filters cancels the previous one of the same requester, and no other count."""
    with members._running, members._running:
        older = members.start_count(contacts_account.account_id, "one", YES)
        same = members.start_count(contacts_account.account_id, "one", YES)
        newer = members.start_count(contacts_account.account_id, "one", [])
        other = members.start_count(contacts_account.account_id, "two", YES)
        assert same is older
    assert older.wait(10) and older.match_count == 0
    assert newer.wait(10) and newer.match_count == 30
    assert other.wait(10) and other.match_count == 20
    assert members.find_count(contacts_account.account_id, "one") is newer
    assert members.find_count(contacts_account.account_id + 1, "one") is None


def test_a_growing_count_has_a_rounded_floor(contacts_account: Home) -> None:
    """The floor is the count rounded down to one digit, and 0 below 1,000."""
    count = members.BackgroundCount(contacts_account.account_id, [], 0)
    floors = []
    for number in (0, 999, 1_000, 1_999, 12_345, 123_456, 987_654):
        count.match_count = number
        floors.append(count.floor)
    assert floors == [0, 0, 1_000, 1_000, 10_000, 100_000, 900_000]
