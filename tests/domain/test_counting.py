"""Counts that go on by themselves: what they find, whom they show, and when they end."""

import pytest

from appliance.audience.segments import members
from tests.domain.home import Home

YES = [{"name": "contact_data.n", "predicate": "gteq", "value": 10}]


@pytest.fixture
def crowd(home: Home) -> Home:
    """Thirty people with a number each."""
    for number in range(30):
        home.upsert(email=f"p{number}@example.com", data={"n": number})
    return home


def test_a_count_ends_with_the_number_and_some_of_the_people(crowd: Home) -> None:
    """All are counted, and those shown are among them, the same for the same seed and others for another."""
    shown = []
    for asker, seed in (("one", 1), ("two", 1), ("three", 2)):
        found = members.start_count(crowd.account_id, asker, YES, seed)
        assert found.wait(10) and found.error is None
        assert (found.match_count, found.contact_count) == (20, 30)
        assert len(set(found.sample)) == members.SAMPLE_SIZE
        nodes = members.parse_filters(crowd.account_id, YES)
        everyone = members.fetch_some(crowd.account_id, nodes, members.build_scope(crowd.account_id), 30)
        assert set(found.sample) <= set(everyone)
        shown.append(found.sample)
    assert shown[0] == shown[1] != shown[2]


def test_without_filters_everybody_is_meant(crowd: Home) -> None:
    """No filters are all people, some of whom are shown."""
    found = members.start_count(crowd.account_id, "one", [])
    assert found.wait(10)
    assert (found.match_count, len(set(found.sample))) == (30, members.SAMPLE_SIZE)


def test_a_newer_question_ends_the_older(crowd: Home) -> None:
    """What an asker asked before counts no further; other askers, and other accounts, are not touched."""
    with members._running, members._running:
        older = members.start_count(crowd.account_id, "one", YES)
        same = members.start_count(crowd.account_id, "one", YES)
        newer = members.start_count(crowd.account_id, "one", [])
        other = members.start_count(crowd.account_id, "two", YES)
        assert same is older
    assert older.wait(10) and older.match_count == 0
    assert newer.wait(10) and newer.match_count == 30
    assert other.wait(10) and other.match_count == 20
    assert members.find_count(crowd.account_id, "one") is newer
    assert members.find_count(crowd.account_id + 1, "one") is None


def test_a_number_is_said_roughly_while_it_grows(crowd: Home) -> None:
    """What is surely reached is said in round numbers, and nothing while it is small."""
    found = members.BackgroundCount(crowd.account_id, [], 0)
    said = []
    for number in (0, 999, 1_000, 1_999, 12_345, 123_456, 987_654):
        found.match_count = number
        said.append(found.floor)
    assert said == [0, 0, 1_000, 1_000, 10_000, 100_000, 900_000]
