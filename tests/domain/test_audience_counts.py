"""Cached counts and previews of a draft's audience."""

import pytest

from appliance.audience import lists
from appliance.audience.contacts import removal
from appliance.campaigns import audience, content
from appliance.core.cache import CostAwareCache
from appliance.storage import transactions
from tests.domain.home import Home


def test_counts_of_small_audiences_are_not_cached(home: Home) -> None:
    """A contact added to a small audience is counted at once."""
    list_id = home.list_of(home.contact("a@example.org").id).id
    campaign = home.campaign(list_id)
    assert audience.get_cached_counts(campaign).sendable == 1
    transactions.write(lists.add_members, home.account_id, list_id, [home.contact("b@example.org").id])
    assert audience.get_cached_counts(campaign).sendable == 2


def test_another_audience_does_not_get_cached_counts(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts and the first recipient are cached for each audience.

    A deleted contact is no longer shown in the preview.
    """
    for name in ("_counts_cache", "_first_recipient_cache", "_last_email_cache"):
        monkeypatch.setattr(audience, name, CostAwareCache(min_age_seconds=3600))
    ann, bob = (home.contact(f"{name}@example.org").id for name in ("ann", "bob"))
    first_list, second_list = home.list_of(ann, name="One").id, home.list_of(ann, bob, name="Two").id
    campaign = home.campaign(first_list)
    assert (audience.get_cached_counts(campaign).sendable, audience.find_first_recipient(campaign)) == (1, ann)
    assert content.render_preview(home.account_id, campaign.id)["contact"].id == ann
    transactions.write(lists.add_members, home.account_id, first_list, [bob])
    assert (audience.get_cached_counts(campaign).sendable, audience.count_audience(campaign).sendable) == (1, 2)
    transactions.write(removal.delete, home.account_id, ann)
    assert content.render_preview(home.account_id, campaign.id)["contact"] is None
    campaign.trigger.contact_list = second_list
    campaign.trigger.save()
    assert (audience.get_cached_counts(campaign).sendable, audience.find_first_recipient(campaign)) == (1, bob)
