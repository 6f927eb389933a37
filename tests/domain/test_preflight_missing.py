"""Where an account asks for it, a message that would reach somebody with a hole in it is not sent."""

import pytest

from appliance.campaigns import preflight
from appliance.core.errors import Invalid
from appliance.storage import transactions
from appliance.storage.models import Account
from tests.domain.home import Home


def test_a_missing_value_blocks_only_where_asked(home: Home) -> None:
    """A tag without a default refuses once the account says so; one with a default does not."""
    people = [home.contact("ann@example.org", first_name="Ann").id, home.contact("bo@example.org").id]
    group = home.list_of(*people)
    holed = home.campaign(group.id, body="<p>Hi {{ contact.first_name }}</p>")
    whole = home.campaign(group.id, "Whole", body="<p>Hi {{ contact.first_name | default: 'friend' }}</p>")
    assert preflight.run_preflight(home.account_id, holed.id).ok
    transactions.write(Account.update(block_on_missing_variable=True).execute)
    found = preflight.run_preflight(home.account_id, holed.id)

    assert [one.message for one in found.blockers] == ["contact.first_name is empty for 1 person and has no default"]
    assert preflight.run_preflight(home.account_id, whole.id).ok
    with pytest.raises(Invalid):
        home.send(holed)
