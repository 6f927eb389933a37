"""What a draft says of its audience: of few as it is now, of many as of a moment ago, of another one at once."""

import pytest

from appliance.audience.contacts import lists, write
from appliance.campaigns import audience, preview
from appliance.core.rested import Rested
from appliance.storage import work
from tests.domain.home import Home


def test_few_are_counted_each_time(home: Home) -> None:
    """Somebody who comes is counted at once."""
    people = home.list_of(home.contact("a@example.org").id).id
    campaign = home.campaign(people)
    assert audience.cached_arithmetic(campaign).sendable == 1
    work.write(lists.join, home.account_id, people, [home.contact("b@example.org").id])
    assert audience.cached_arithmetic(campaign).sendable == 2


def test_another_audience_is_another_one_at_once(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """However dear it was to count, a draft for others is told of others; somebody who is gone is shown to nobody."""
    for name in ("_counted", "_first", "_mailed"):
        monkeypatch.setattr(audience, name, Rested(least=3600))
    ann, bob = (home.contact(f"{name}@example.org").id for name in ("ann", "bob"))
    one, two = home.list_of(ann, name="One").id, home.list_of(ann, bob, name="Two").id
    campaign = home.campaign(one)
    assert (audience.cached_arithmetic(campaign).sendable, audience.first_person(campaign)) == (1, ann)
    assert preview.render(home.account_id, campaign.id)["contact"].id == ann
    work.write(lists.join, home.account_id, one, [bob])
    assert (audience.cached_arithmetic(campaign).sendable, audience.arithmetic(campaign).sendable) == (1, 2)
    work.write(write.delete, home.account_id, ann)
    assert preview.render(home.account_id, campaign.id)["contact"] is None
    campaign.trigger.contact_list = two
    campaign.trigger.save()
    assert (audience.cached_arithmetic(campaign).sendable, audience.first_person(campaign)) == (1, bob)
