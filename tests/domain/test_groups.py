"""The groups of a draft's audience (sendable, by reason, excluded), applied templates and resends."""

from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.accounts.audit import Actor
from appliance.audience.segments import store as segments
from appliance.audience.segments.store import SegmentCreate
from appliance.campaigns import audience, content, experiment, hold_reasons, preflight, resends, store, variants
from appliance.campaigns.audience import LEFT_OUT, GroupQuery
from appliance.campaigns.store import CampaignCreate
from appliance.campaigns.variants import ExperimentWrite, VariantWrite
from appliance.content.templates import store as templates
from appliance.content.templates import template_edits, validation
from appliance.core import clock
from appliance.core.errors import Invalid, NotFound
from appliance.core.validation import read
from appliance.storage import transactions
from appliance.storage.database import run
from appliance.storage.models import Campaign
from tests.domain.home import Home
from tests.kit.sampling import examples

CONTACT_COUNT = 12
list_numbers = count()
contact_indexes = st.sets(st.integers(0, CONTACT_COUNT - 1))


@pytest.fixture
def mixed_contacts(home: Home) -> tuple[Home, list[int]]:
    """Return an installation and the ids of contacts, some unsubscribed, suppressed or without email or first name."""
    contact_ids = []
    for number in range(CONTACT_COUNT):
        address = {"phone": f"+1415555{1000 + number}"} if number == 7 else {"email": f"p{number}@example.org"}
        name = {} if number % 4 == 0 else {"first_name": "Ann" if number % 2 else "Bo"}
        contact_ids.append(home.upsert(**address, **name).contact.id)
    home.opt_out("p1@example.org")
    home.opt_out("p2@example.org")
    home.suppress("p3@example.org", "manual")
    return home, contact_ids


def create_draft(home: Home, **trigger: Any) -> Campaign:
    """Create a draft for an audience."""
    body = {"name": "Spring", "trigger_attributes": trigger}
    return transactions.write(store.create, home.account_id, read(CampaignCreate, body))


def list_group_ids(campaign: Campaign, **query: Any) -> set[int]:
    """Return the contact ids of a group, after a check of its total."""
    ids: list[int] = []
    for number in range(1, CONTACT_COUNT + 2):
        page = audience.list_group(campaign.account_id, campaign.id, GroupQuery(page=number, limit=5, **query))
        ids += [row.id for row in page.rows]
        if not page.rows:
            break
    assert len(ids) == len(set(ids)) == page.total
    return set(ids)


@settings(max_examples=examples(8, full=30))
@given(chosen=contact_indexes, also=contact_indexes, out=contact_indexes)
def test_the_groups_add_up_to_the_audience(
    mixed_contacts: tuple[Home, list[int]], chosen: set[int], also: set[int], out: set[int]
) -> None:
    """Sendable, unsendable by reason and excluded contacts have the counted sizes, and no contact is in two groups."""
    home, contact_ids = mixed_contacts
    lists = [
        home.list_of(*(contact_ids[index] for index in group), name=f"L{next(list_numbers)}").id
        for group in (chosen, also, out)
    ]
    data = {"contact_list_ids": [lists[1]], "exclude_contact_list_ids": [lists[2]]}
    campaign = create_draft(home, contact_list_id=lists[0], data=data)
    totals = audience.count_audience(campaign)
    sendable = list_group_ids(campaign)
    unsendable = [list_group_ids(campaign, why=why) for why in totals.reasons]
    left_out = list_group_ids(campaign, why=LEFT_OUT)
    assert len(sendable) == totals.sendable
    assert [len(index) for index in unsendable] == list(totals.reasons.values())
    assert len(left_out) == audience.count_excluded(campaign)
    assert left_out == {contact_ids[index] for index in (chosen | also) & out}
    assert sum(map(len, (sendable, *unsendable, left_out))) == len(chosen | also)
    assert sendable.union(*unsendable, left_out) == {contact_ids[index] for index in chosen | also}


def test_find_neighbours(mixed_contacts: tuple[Home, list[int]]) -> None:
    """Neighbours lead through all sendable contacts in order; search and `nameless` narrow a group."""
    home, contact_ids = mixed_contacts
    campaign = create_draft(home, contact_list_id=home.list_of(*contact_ids).id)
    sendable = sorted(list_group_ids(campaign))
    visited, current = [], sendable[0]
    while current is not None:
        neighbours = audience.find_neighbours(campaign, current)
        visited.append((neighbours.position, current))
        current = neighbours.after
    assert visited == list(enumerate(sendable, 1))
    unsendable_neighbours = audience.find_neighbours(campaign, contact_ids[3])
    assert (unsendable_neighbours.before, unsendable_neighbours.after) == (
        contact_ids[0],
        contact_ids[4],
    ) and unsendable_neighbours.total == len(sendable)
    nameless = list_group_ids(campaign, nameless=True)
    assert nameless == {contact_ids[0], contact_ids[4], contact_ids[8]}
    assert list_group_ids(campaign, search="bo") == {contact_ids[6], contact_ids[10]}
    assert list_group_ids(campaign, search="p5@example.org") == {contact_ids[5]}
    assert list_group_ids(campaign, search="!!") == set(sendable)


def test_the_groups_of_a_draft_without_audience_are_empty(home: Home) -> None:
    """An unknown campaign is not found."""
    campaign = create_draft(home)
    assert (list_group_ids(campaign), list_group_ids(campaign, why=LEFT_OUT), audience.count_excluded(campaign)) == (
        set(),
        set(),
        0,
    )
    with pytest.raises(NotFound):
        audience.list_group(home.account_id, campaign.id + 1, GroupQuery())


def test_applying_a_template_copies_its_content(home: Home) -> None:
    """The campaign keeps its own copy and subject; the history restores the content; an SMS template is rejected."""
    template_fields = validation.TemplateWrite(name="Monthly", subject="Theirs", preheader="Before", body="<p>New</p>")
    source = transactions.write(templates.create, home.account_id, template_fields)
    campaign = home.campaign(home.list_of().id)
    updated = transactions.write(content.apply_template, home.account_id, campaign.id, source.id)
    assert (updated.template.subject, updated.template.preheader, updated.template.body) == (
        "Hello",
        "Before",
        "<p>New</p>",
    )
    update = validation.TemplateWrite(body="<p>Other</p>")
    transactions.write(templates.update, home.account_id, source.id, update)
    assert store.get(home.account_id, campaign.id).template.body == "<p>New</p>"
    from_starter = transactions.write(content.apply_template, home.account_id, campaign.id, "newsletter").template
    assert from_starter.body is None and from_starter.design["sections"]
    with pytest.raises(Invalid, match="nothing to undo"):  # the design that was chosen is where undo ends
        transactions.write(template_edits.undo, home.account_id, from_starter.id)
    transactions.write(template_edits.restore, home.account_id, from_starter.id, from_starter.revision - 1)
    assert store.get(home.account_id, campaign.id).template.body == "<p>New</p>"
    sms = transactions.write(templates.create, home.account_id, validation.TemplateWrite(channel="sms", body="Hi"))
    with pytest.raises(Invalid):
        transactions.write(content.apply_template, home.account_id, campaign.id, sms.id)
    for unknown in ("no such starter", 10**9):
        with pytest.raises(NotFound):
            transactions.write(content.apply_template, home.account_id, campaign.id, unknown)


def test_resend_to_non_openers(home: Home) -> None:
    """The draft is for recipients who did not open the campaign; a draft cannot be resent."""
    ids = [home.contact(f"p{number}@example.org").id for number in range(4)]
    contact_list = home.list_of(*ids)
    campaign = home.campaign(contact_list.id)
    with pytest.raises(Invalid):
        transactions.write(resends.create_resend_to_non_openers, home.account_id, campaign.id, Actor())
    home.send(campaign)
    with pytest.raises(Invalid):
        resends.check_resend(home.account_id, campaign.id)  # it is still being sent
    transactions.write(run, "UPDATE campaign SET phase = 'completed' WHERE id = ?", (campaign.id,))
    transactions.write(_mark_opened, campaign.id, ids)
    with pytest.raises(Invalid, match="every recipient"):
        resends.check_resend(home.account_id, campaign.id)
    transactions.write(run, "UPDATE message SET opened_at = NULL WHERE campaign_id = ?", (campaign.id,))
    transactions.write(_mark_opened, campaign.id, ids[:2])
    resends.check_resend(home.account_id, campaign.id)
    transactions.write(run, "UPDATE campaign SET tracking = 0 WHERE id = ?", (campaign.id,))
    with pytest.raises(Invalid, match="not tracked"):
        resends.check_resend(home.account_id, campaign.id)
    transactions.write(run, "UPDATE campaign SET tracking = 1 WHERE id = ?", (campaign.id,))
    resend = transactions.write(resends.create_resend_to_non_openers, home.account_id, campaign.id, Actor())
    assert list_group_ids(resend) == {ids[2], ids[3]}
    assert (resend.phase, resend.template.subject, resend.name) == ("draft", "Hello", "Spring (resend)")
    assert segments.get(home.account_id, resend.trigger.segment_id).name == "Did not open Spring"
    # It is preset to the day after tomorrow, and does not warn of the campaign that it resends.
    assert 1 <= (resend.scheduled_at - clock.now_ms()) // clock.DAY_MS <= 2
    warnings = preflight.run_preflight(home.account_id, resend.id).warnings
    assert "overlapping_campaign" not in [finding.code for finding in warnings]


def test_a_resend_has_the_content_of_the_winner(home: Home) -> None:
    """After an A/B test, the resend has no test of its own, and what the winner sent."""
    contacts = [home.contact(f"r{number}@example.org") for number in range(4)]
    draft = home.campaign(home.list_of(*(contact.id for contact in contacts)).id)
    request = ExperimentWrite(variants=[VariantWrite(), VariantWrite(subject="B")], test_share=0.5)
    transactions.write(variants.apply, draft, request)
    campaign = home.send(draft)
    transactions.write(experiment.choose_winner, home.account_id, campaign.id, 2, Actor("key:1"))
    transactions.write(run, "UPDATE campaign SET phase = 'completed' WHERE id = ?", (campaign.id,))
    resend = transactions.write(resends.create_resend_to_non_openers, home.account_id, campaign.id, Actor())

    assert (resend.setup, resend.template.subject, resend.template.body) == (None, "B", "<p>Hi</p>")
    assert variants.find(campaign.id) is not None


def _mark_opened(campaign_id: int, contact_ids: list[int]) -> None:
    marks = ", ".join(map(str, contact_ids))
    run("UPDATE message SET sent_at = 1, status = 'sent' WHERE campaign_id = ?", (campaign_id,))
    run(f"UPDATE message SET opened_at = 2 WHERE campaign_id = ? AND contact_id IN ({marks})", (campaign_id,))


def test_forecast_duration_names_the_slowest_limit(home: Home) -> None:
    """Without a limit, without recipients or with the capture transport there is no forecast."""
    campaign = home.campaign(home.list_of().id)
    assert hold_reasons.forecast_duration(campaign, 1000, "a@example.org") is None
    home.configure(email__transport="relay", email__relay__host="mail.example.org")
    assert hold_reasons.forecast_duration(campaign, 1000, "a@example.org") is None
    home.configure(
        email__transport="relay", email__relay__host="mail.example.org", email__rate_per_second=10,
        email__rate_per_hour=500, email__sender_limits=["example.org 100/h"],
    )  # fmt: skip
    limited_sender, other_sender = (
        hold_reasons.forecast_duration(campaign, 1001, "a@example.org"),
        hold_reasons.forecast_duration(campaign, 1001, "a@other.example"),
    )
    assert limited_sender is not None and other_sender is not None
    assert (limited_sender.limit, round(limited_sender.seconds / 3600)) == ("100 an hour from example.org", 10)
    assert (other_sender.limit, round(other_sender.seconds / 3600)) == ("500 an hour", 2)
    assert hold_reasons.forecast_duration(campaign, 0, "a@example.org") is None


def test_all_contacts_except_a_segment(mixed_contacts: tuple[Home, list[int]]) -> None:
    """The excluded group has the members of the excluded segment."""
    home, contact_ids = mixed_contacts
    filters = [{"name": "contact_first_name", "predicate": "eq", "value": "Bo"}]
    segment = transactions.write(segments.create, home.account_id, SegmentCreate(name="Bos", filters=filters))
    campaign = create_draft(home, data={"audience_type": "all_contacts", "exclude_segment_ids": [segment.id]})
    assert list_group_ids(campaign, why=LEFT_OUT) == {contact_ids[number] for number in (2, 6, 10)}
    assert audience.count_audience(campaign).members == CONTACT_COUNT - 3
