"""The people of a draft: every group of its arithmetic has the people it counts, and its content is its own."""

from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.audience.segments import store as segments
from appliance.audience.segments.store import SegmentCreate
from appliance.campaigns import audience, hold_reasons, send, store, template_changes
from appliance.campaigns.audience import LEFT_OUT, GroupQuery
from appliance.campaigns.store import CampaignCreate
from appliance.content.templates import store as templates
from appliance.content.templates import validation
from appliance.core.errors import Invalid, NotFound
from appliance.core.validation import read
from appliance.storage import transactions
from appliance.storage.database import run
from appliance.storage.models import Campaign
from tests.domain.home import Home

PEOPLE = 12
numbers = count()
some = st.sets(st.integers(0, PEOPLE - 1))


@pytest.fixture
def crowd(home: Home) -> tuple[Home, list[int]]:
    """People, some of whom left, are suppressed, have no address, or no first name."""
    ids = []
    for number in range(PEOPLE):
        address = {"phone": f"+1415555{1000 + number}"} if number == 7 else {"email": f"p{number}@example.org"}
        name = {} if number % 4 == 0 else {"first_name": "Ann" if number % 2 else "Bo"}
        ids.append(home.upsert(**address, **name).contact.id)
    home.leave("p1@example.org")
    home.leave("p2@example.org")
    home.suppress("p3@example.org", "manual")
    return home, ids


def draft(home: Home, **trigger: Any) -> Campaign:
    """Make a draft for an audience."""
    body = {"name": "Spring", "trigger_attributes": trigger}
    return transactions.write(store.create, home.account_id, read(CampaignCreate, body))


def all_of(campaign: Campaign, **query: Any) -> set[int]:
    """Return the people of a group, from pages that must agree with its total."""
    found: list[int] = []
    for number in range(1, PEOPLE + 2):
        page = audience.list_group(campaign.account_id, campaign.id, GroupQuery(page=number, limit=5, **query))
        found += [row.id for row in page.rows]
    assert len(found) == len(set(found)) == page.total
    return set(found)


@settings(max_examples=15)
@given(chosen=some, also=some, out=some)
def test_the_groups_are_the_audience(
    crowd: tuple[Home, list[int]], chosen: set[int], also: set[int], out: set[int]
) -> None:
    """Who gets it, who does not by reason, and who is left out: each as many as are counted, nobody in two."""
    home, ids = crowd
    lists = [home.list_of(*(ids[one] for one in group), name=f"L{next(numbers)}").id for group in (chosen, also, out)]
    data = {"contact_list_ids": [lists[1]], "exclude_contact_list_ids": [lists[2]]}
    campaign = draft(home, contact_list_id=lists[0], data=data)
    sums = audience.count_audience(campaign)
    gets = all_of(campaign)
    others = [all_of(campaign, why=why) for why in sums.reasons]
    left_out = all_of(campaign, why=LEFT_OUT)
    assert len(gets) == sums.sendable
    assert [len(one) for one in others] == list(sums.reasons.values())
    assert len(left_out) == audience.count_excluded(campaign)
    assert left_out == {ids[one] for one in (chosen | also) & out}
    assert sum(map(len, (gets, *others, left_out))) == len(chosen | also)
    assert gets.union(*others, left_out) == {ids[one] for one in chosen | also}


def test_from_one_to_the_next(crowd: tuple[Home, list[int]]) -> None:
    """Whoever gets it is met once, in order; somebody else stands between them; words and missing names narrow."""
    home, ids = crowd
    campaign = draft(home, contact_list_id=home.list_of(*ids).id)
    gets = sorted(all_of(campaign))
    met, at = [], gets[0]
    while at is not None:
        here = audience.find_neighbours(campaign, at)
        met.append((here.position, at))
        at = here.after
    assert met == list(enumerate(gets, 1))
    between = audience.find_neighbours(campaign, ids[3])
    assert (between.before, between.after) == (ids[0], ids[4]) and between.total == len(gets)
    nameless = all_of(campaign, nameless=True)
    assert nameless == {ids[0], ids[4], ids[8]}
    assert all_of(campaign, search="bo") == {ids[6], ids[10]}
    assert all_of(campaign, search="p5@example.org") == {ids[5]}
    assert all_of(campaign, search="!!") == set(gets)


def test_nobody_is_chosen(home: Home) -> None:
    """Without an audience every group is empty, and nothing is left out."""
    campaign = draft(home)
    assert (all_of(campaign), all_of(campaign, why=LEFT_OUT), audience.count_excluded(campaign)) == (set(), set(), 0)
    with pytest.raises(NotFound):
        audience.list_group(home.account_id, campaign.id + 1, GroupQuery())


def test_a_template_is_copied(home: Home) -> None:
    """A campaign takes content and missing words of a template, keeps its own, and one undo brings back what was."""
    asked = validation.TemplateWrite(name="Monthly", subject="Theirs", preheader="Before", body="<p>New</p>")
    source = transactions.write(templates.create, home.account_id, asked)
    campaign = home.campaign(home.list_of().id)
    done = transactions.write(template_changes.apply_template, home.account_id, campaign.id, source.id)
    assert (done.template.subject, done.template.preheader, done.template.body) == ("Hello", "Before", "<p>New</p>")
    update = validation.TemplateWrite(body="<p>Other</p>")
    transactions.write(templates.update, home.account_id, source.id, update)
    assert store.get(home.account_id, campaign.id).template.body == "<p>New</p>"
    begun = transactions.write(template_changes.apply_template, home.account_id, campaign.id, "newsletter").template
    assert begun.body is None and begun.design["sections"]
    transactions.write(templates.undo, home.account_id, begun.id)
    assert store.get(home.account_id, campaign.id).template.body == "<p>New</p>"
    sms = transactions.write(templates.create, home.account_id, validation.TemplateWrite(channel="sms", body="Hi"))
    with pytest.raises(Invalid):
        transactions.write(template_changes.apply_template, home.account_id, campaign.id, sms.id)
    for nothing in ("no such starter", 10**9):
        with pytest.raises(NotFound):
            transactions.write(template_changes.apply_template, home.account_id, campaign.id, nothing)


def test_once_more_to_who_did_not_open(home: Home) -> None:
    """The draft is for those who got it and did not open it, and who are still in its list."""
    ids = [home.contact(f"p{number}@example.org").id for number in range(4)]
    group = home.list_of(*ids)
    campaign = home.campaign(group.id)
    with pytest.raises(Invalid):
        transactions.write(send.create_resend_to_non_openers, home.account_id, campaign.id)
    home.send(campaign)
    transactions.write(_opened, campaign.id, ids[:2])
    made = transactions.write(send.create_resend_to_non_openers, home.account_id, campaign.id)
    assert all_of(made) == {ids[2], ids[3]}
    assert (made.phase, made.template.subject, made.name) == ("draft", "Hello", "Spring (once more)")
    assert segments.get(home.account_id, made.trigger.segment_id).name == "Did not open Spring"


def _opened(campaign_id: int, contact_ids: list[int]) -> None:
    marks = ", ".join(map(str, contact_ids))
    run("UPDATE message SET sent_at = 1 WHERE campaign_id = ?", (campaign_id,))
    run(f"UPDATE message SET opened_at = 2 WHERE campaign_id = ? AND contact_id IN ({marks})", (campaign_id,))


def test_how_long_it_takes(home: Home) -> None:
    """The slowest limit tells; capture and what nobody limits take no time worth a word."""
    campaign = home.campaign(home.list_of().id)
    assert hold_reasons.forecast_duration(campaign, 1000, "a@example.org") is None
    home.configure(email__transport="relay", email__relay__host="mail.example.org")
    assert hold_reasons.forecast_duration(campaign, 1000, "a@example.org") is None
    home.configure(
        email__transport="relay", email__relay__host="mail.example.org", email__rate_per_second=10,
        email__rate_per_hour=500, email__sender_limits=["example.org 100/h"],
    )  # fmt: skip
    slow, usual = (
        hold_reasons.forecast_duration(campaign, 1001, "a@example.org"),
        hold_reasons.forecast_duration(campaign, 1001, "a@other.example"),
    )
    assert slow is not None and usual is not None
    assert (slow.limit, round(slow.seconds / 3600)) == ("100 an hour from example.org", 10)
    assert (usual.limit, round(usual.seconds / 3600)) == ("500 an hour", 2)
    assert hold_reasons.forecast_duration(campaign, 0, "a@example.org") is None


def test_everybody_but_a_segment(crowd: tuple[Home, list[int]]) -> None:
    """All contacts less a segment leave out whom it has."""
    home, ids = crowd
    rule = [{"name": "contact_first_name", "predicate": "eq", "value": "Bo"}]
    segment = transactions.write(segments.create, home.account_id, SegmentCreate(name="Bos", filters=rule))
    campaign = draft(home, data={"audience_type": "all_contacts", "exclude_segment_ids": [segment.id]})
    assert all_of(campaign, why=LEFT_OUT) == {ids[number] for number in (2, 6, 10)}
    assert audience.count_audience(campaign).members == PEOPLE - 3
