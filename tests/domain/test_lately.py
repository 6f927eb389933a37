"""What a draft says of its audience: of few as it is now, of many as of a moment ago, of another one at once."""

import pytest

from appliance.audience import lists
from appliance.audience.contacts import removal
from appliance.campaigns import audience, preview
from appliance.core.cache import CostAwareCache
from appliance.storage import transactions
from tests.domain.home import Home


def test_few_are_counted_each_time(home: Home) -> None:
    """Somebody who comes is counted at once."""
    people = home.list_of(home.contact("a@example.org").id).id
    campaign = home.campaign(people)
    assert audience.get_cached_counts(campaign).sendable == 1
    transactions.write(lists.add_members, home.account_id, people, [home.contact("b@example.org").id])
    assert audience.get_cached_counts(campaign).sendable == 2


def test_another_audience_is_another_one_at_once(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """However dear it was to count, a draft for others is told of others; somebody who is gone is shown to nobody."""
    for name in ("_counts_cache", "_first_recipient_cache", "_last_email_cache"):
        monkeypatch.setattr(audience, name, CostAwareCache(min_age_seconds=3600))
    ann, bob = (home.contact(f"{name}@example.org").id for name in ("ann", "bob"))
    one, two = home.list_of(ann, name="One").id, home.list_of(ann, bob, name="Two").id
    campaign = home.campaign(one)
    assert (audience.get_cached_counts(campaign).sendable, audience.find_first_recipient(campaign)) == (1, ann)
    assert preview.render_preview(home.account_id, campaign.id)["contact"].id == ann
    transactions.write(lists.add_members, home.account_id, one, [bob])
    assert (audience.get_cached_counts(campaign).sendable, audience.count_audience(campaign).sendable) == (1, 2)
    transactions.write(removal.delete, home.account_id, ann)
    assert preview.render_preview(home.account_id, campaign.id)["contact"] is None
    campaign.trigger.contact_list = two
    campaign.trigger.save()
    assert (audience.get_cached_counts(campaign).sendable, audience.find_first_recipient(campaign)) == (1, bob)
