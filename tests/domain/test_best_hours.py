"""The best hour of each contact: against simulated people, and in campaigns that are sent by it."""

import random
from collections import Counter
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from appliance.accounts.audit import Actor
from appliance.api.contacts import collect_contact_data
from appliance.audience.contacts import removal
from appliance.campaigns import (
    audience,
    audience_snapshot,
    best_hours,
    experiment,
    local_preflight,
    preflight,
    send,
    variants,
)
from appliance.campaigns.audience_snapshot import BatchRunner
from appliance.campaigns.best_hours import HourCounts
from appliance.campaigns.store import CampaignPatch, SendRequest
from appliance.campaigns.variants import ExperimentWrite, VariantWrite
from appliance.core import clock, validation
from appliance.core.errors import Invalid
from appliance.storage import transactions
from appliance.storage.database import rows, run
from appliance.storage.models import Campaign
from appliance.tracking import engagement
from appliance.tracking.engagement import FirstClick
from tests.domain.home import BY_API, Home

BY = Actor(can_send=True, can_approve=True)
FIRST, UNTIL = 8, 20
# The hours at which people without an hour of their own click: 10 is the most likely.
LIST = {hour: 4 if hour == 10 else 2 if hour in (9, 11, 18) else 1 for hour in range(FIRST, UNTIL)}
OWN_SHARE = 0.7


def draw_clicks(rng: random.Random, number: int, own_hour: int | None) -> Counter[int]:
    """Draw the clicks of a person by hour; `OWN_SHARE` of them are at the own hour, if there is one."""
    hours, weights = list(LIST), list(LIST.values())
    return Counter(
        own_hour if own_hour is not None and rng.random() < OWN_SHARE else rng.choices(hours, weights)[0]
        for _ in range(number)
    )


def count(people: list[Counter[int]]) -> HourCounts:
    """Return the counts of people's clicks, as the database sums them up."""
    by_hour = Counter((hour, number) for clicks in people for hour, number in clicks.items())
    return HourCounts(by_hour, Counter(total for clicks in people if (total := clicks.total())))


def simulate(clicks: int, own_share: float, people: int = 1_500) -> tuple[float, float]:
    """Return the share of people with an own hour who get it, and of those without who get the hour of all."""
    rng = random.Random(1)
    own_hours = [rng.choice(list(LIST)) if rng.random() < own_share else None for _ in range(people)]
    drawn = [draw_clicks(rng, clicks, own_hour) for own_hour in own_hours]
    weights = best_hours.estimate(count(drawn), FIRST, UNTIL)
    with_own, without = Counter[bool](), Counter[bool]()
    for own_hour, person in zip(own_hours, drawn, strict=True):
        chosen = weights.choose(person)
        (without if own_hour is None else with_own)[chosen == (10 if own_hour is None else own_hour)] += 1
    return with_own[True] / max(1, with_own.total()), without[True] / max(1, without.total())


@pytest.mark.parametrize(("clicks", "least"), [(3, 0.8), (6, 0.95), (12, 0.99)])
def test_people_with_an_hour_of_their_own_get_it(clicks: int, least: float) -> None:
    """Where each has an hour of their own, most get it after a few clicks, and nearly all after a dozen."""
    own, _ = simulate(clicks, 1.0)
    assert own >= least


@pytest.mark.parametrize("clicks", [1, 3, 12])
def test_people_without_one_get_that_of_all(clicks: int) -> None:
    """Where nobody has an hour of their own, chance alone gives hardly anybody another one than that of all."""
    _, common = simulate(clicks, 0.0)
    assert common >= 0.99


def test_a_list_of_both_kinds() -> None:
    """Where half of them have an hour of their own, these get it, and most of the others that of all."""
    own, common = simulate(12, 0.5)
    assert own >= 0.97
    assert common >= 0.6


def test_without_clicks_it_is_the_first_hour() -> None:
    """Nothing speaks for another one."""
    weights = best_hours.estimate(HourCounts({}, {}), FIRST, UNTIL)
    assert (weights.choose({}), weights.best, weights.people) == (FIRST, FIRST, 0)
    assert weights.choose({2: 50}) == FIRST  # hours outside of the choice do not count


# Campaigns

ZONES = ("Asia/Tokyo", "Europe/Berlin", "America/New_York")
HOURS = {"early": 8, "late": 19, "night": 22}
DAY = "2031-12-01"


def click(contact_id: int, account_id: int, zone: str, hour: int, times: int) -> None:
    """Count clicks of a contact at an hour of their clock."""
    at = int(datetime(2031, 11, 3, hour, 30, tzinfo=ZoneInfo(zone)).timestamp() * 1000)
    transactions.write(engagement.add_click_hours, [FirstClick(account_id, contact_id, at)] * times)


def create(home: Home, until: int = UNTIL, **test: object) -> Campaign:
    """Create a draft at the best hour of each contact, to contacts in three zones with hours of their own or none."""
    ids = []
    for zone in ZONES:
        for name, hour in {**HOURS, "new": None}.items():
            data = {"time_zone": zone}
            contact = home.contact(f"{name}-{zone[-4:].lower()}@example.org", first_name=name, data=data)
            ids.append(contact.id)
            if hour is not None:
                click(contact.id, home.account_id, zone, hour, 6)
    common = home.contact("common@example.org", first_name="common", data={"time_zone": ZONES[0]})
    click(common.id, home.account_id, ZONES[0], 12, 30)
    draft = home.campaign(home.list_of(*ids, common.id).id)
    if test:
        transactions.write(variants.apply, draft, ExperimentWrite(**test))  # type: ignore[arg-type]  # fields of a test
    times = {"local_time": f"{DAY}T{FIRST:02}:00", "best_hour_until": until}
    request = validation.read(CampaignPatch, times)
    return transactions.write(send.update, home.account_id, draft.id, request, BY)


def start(home: Home, campaign: Campaign) -> None:
    """Send a campaign, and start it at the first moment at which it is its local time anywhere."""
    prepared = preflight.prepare_send(home.account_id, campaign.id)
    request = validation.read(SendRequest, {})
    sent = transactions.write(send.go_live, home.account_id, campaign.id, request, BY, None, prepared)
    assert sent.phase == "scheduled"
    home.advance((sent.scheduled_at - clock.now_ms()) / 1000 + 1)
    prepared = preflight.prepare_send(home.account_id, campaign.id)
    transactions.write(send.start_scheduled, home.account_id, campaign.id, prepared)


def read_due_times(campaign: Campaign) -> dict[str, set[str]]:
    """Return what the clocks of the recipients show when their messages are due, by first name."""
    sql = (
        "SELECT c.first_name, m.due_at, c.data ->> '$.time_zone' FROM message m JOIN contact c ON c.id = m.contact_id "
        "WHERE m.campaign_id = ? AND m.due_at NOT NULL"
    )
    due_times: dict[str, set[str]] = {}
    for name, due_at, zone in rows(sql, (campaign.id,)):
        shown = f"{datetime.fromtimestamp(due_at / 1000, ZoneInfo(zone)):%Y-%m-%d %H:%M}"
        due_times.setdefault(name, set()).add(shown)
    return due_times


EXPECTED = {
    "early": {f"{DAY} 08:00"}, "late": {f"{DAY} 19:00"}, "night": {f"{DAY} 12:00"}, "new": {f"{DAY} 12:00"},
    "common": {f"{DAY} 12:00"},
}  # fmt: skip


@pytest.mark.parametrize("is_large", [False, True])
def test_each_gets_it_at_their_hour(home: Home, is_large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has no hour of their own between the hours gets that of all; the forecast is what is sent."""
    if is_large:
        monkeypatch.setattr(audience_snapshot, "MAX_AT_ONCE", 3)
    draft = create(home)
    assert (draft.scheduled_at, draft.best_hour_until) == (clock.parse("2031-11-30T18:00:00Z"), UNTIL)
    forecast = local_preflight.get_send_times(home.account_id, draft.id)
    assert {row.hour: row.recipients for row in forecast.hours} == {8: 3, 12: 7, 19: 3}
    assert (forecast.first_at, forecast.last_at) == ("2031-11-30T23:00:00.000Z", "2031-12-02T00:00:00.000Z")
    start(home, draft)
    if is_large:
        BatchRunner().run()
    assert read_due_times(draft) == EXPECTED
    fixed = local_preflight.get_send_times(home.account_id, draft.id)
    assert (fixed.times, fixed.hours) == (forecast.times, forecast.hours)
    run("UPDATE message SET clicked_at = 1 WHERE campaign_id = ? AND contact_id IN (1, 2)", (draft.id,))
    reported = local_preflight.get_send_times(home.account_id, draft.id)
    assert {row.hour: row.clicked for row in reported.hours} == {8: 1, 12: 0, 19: 1}


def test_a_choice_of_one_hour(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """With nothing to choose from, it is a campaign by local time."""
    monkeypatch.setattr(audience_snapshot, "MAX_AT_ONCE", 3)
    draft = create(home, until=FIRST + 1)
    start(home, draft)
    BatchRunner().run()
    assert set.union(*read_due_times(draft).values()) == {f"{DAY} 08:00"}


def test_a_list_that_was_lost_keeps_what_is_fixed(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clicks after a crash change nothing for messages that have a row, and the counts by hour stay complete."""
    monkeypatch.setattr(audience_snapshot, "MAX_AT_ONCE", 3)
    draft = create(home)
    start(home, draft)
    campaign = Campaign.get_by_id(draft.id)
    state = audience_snapshot.get_state(campaign)
    assert state is not None
    key = audience_snapshot.SnapshotKey(draft.id, campaign.started_at)
    written = audience_snapshot.write_audience(key, state.audience, "email", 0, lambda: False)
    transactions.write(audience_snapshot.record_list, key, written)
    transactions.run_outside_transaction(audience_snapshot.attach, key)
    transactions.write(audience_snapshot.write_batch, key, 2)
    transactions.run_outside_transaction(audience_snapshot.detach)
    audience_snapshot.get_path(key).unlink()
    for contact_id in (1, 2):
        click(contact_id, home.account_id, ZONES[0], 15, 99)
    BatchRunner().run()
    assert read_due_times(draft) == EXPECTED
    fixed = local_preflight.get_send_times(home.account_id, draft.id)
    assert {row.hour: row.recipients for row in fixed.hours} == {8: 3, 12: 7, 19: 3}


def test_tests_and_holdouts_keep_their_hours(home: Home) -> None:
    """Who waits for the winner gets it at their own hour of a later day; who is held out has no time."""
    both = [VariantWrite(), VariantWrite(subject="B")]
    draft = create(home, variants=both, test_share=0.5, holdout=0.2, decide_after_minutes=60, decided_by="person")
    start(home, draft)
    tried = read_due_times(draft)
    assert all(times <= EXPECTED[name] for name, times in tried.items())
    home.advance(86_400 * 2)
    transactions.write(experiment.choose_winner, home.account_id, draft.id, 1, BY)
    BatchRunner().run()
    hours = {name: {shown[-5:] for shown in times} for name, times in read_due_times(draft).items()}
    assert all(times <= {shown[-5:] for shown in EXPECTED[name]} for name, times in hours.items())


def test_what_is_refused_and_warned_of(home: Home) -> None:
    """The hours end after the local time, which is a full hour; nobody's clicks are a warning."""
    draft = home.campaign(home.list_of(home.contact("a@example.org").id).id)
    for body, fields in (
        ({"best_hour_until": 20}, {"best_hour_until"}),
        ({"local_time": f"{DAY}T08:30", "best_hour_until": 8}, {"local_time", "best_hour_until"}),
    ):
        with pytest.raises(Invalid) as caught:
            transactions.write(send.update, home.account_id, draft.id, validation.read(CampaignPatch, body), BY)
        assert caught.value.fields.keys() == fields
    body = {"local_time": f"{DAY}T08:00", "best_hour_until": 20}
    transactions.write(send.update, home.account_id, draft.id, validation.read(CampaignPatch, body), BY)
    warnings = {
        finding.code: finding.message for finding in preflight.run_preflight(home.account_id, draft.id).warnings
    }
    assert warnings["best_hour_unknown"] == "nobody has clicked at these hours yet: all contacts get it at 08:00"
    request = validation.read(CampaignPatch, {"local_time": f"{DAY}T09:30"})
    assert transactions.write(send.update, home.account_id, draft.id, request, BY).best_hour_until is None


def test_clicks_follow_a_merge_and_a_correction(home: Home) -> None:
    """Merged contacts keep the clicks of both; a click that was by a machine is taken out again.

    The export of a contact has the hours, and an erasure deletes them.
    """
    first, second = (home.contact(f"{name}@example.org", data={"time_zone": ZONES[1]}) for name in "ab")
    for contact in (first, second):
        click(contact.id, home.account_id, ZONES[1], 9, 2)
    at = int(datetime(2031, 11, 3, 9, 30, tzinfo=ZoneInfo(ZONES[1])).timestamp() * 1000)
    transactions.write(removal.merge, home.account_id, first.id, second.id, BY_API)
    assert rows("SELECT contact_id, hour, clicks FROM click_hour") == [(first.id, 9, 4)]
    exported = collect_contact_data(home.account_id, first.id)
    assert (exported.time_zone, [(row.hour, row.clicks) for row in exported.click_hours]) == (ZONES[1], [(9, 4)])
    for _ in range(5):
        transactions.write(engagement.remove_click_hour, FirstClick(home.account_id, first.id, at))
    assert rows("SELECT * FROM click_hour") == []
    click(first.id, home.account_id, ZONES[1], 9, 2)
    weights = audience.weigh_hours(home.campaign(home.list_of(first.id).id), FIRST, UNTIL)
    assert (weights.best, weights.people) == (9, 1)
    transactions.write(removal.erase, home.account_id, first.id, BY_API)
    assert rows("SELECT * FROM click_hour") == []
