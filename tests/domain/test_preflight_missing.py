"""The account setting that blocks campaigns whose merge tags would be empty for a recipient."""

import pytest

from appliance.campaigns import preflight
from appliance.core.errors import Invalid
from appliance.storage import transactions
from appliance.storage.models import Account
from tests.domain.home import Home


def test_missing_values_block_only_if_the_account_wants_it(home: Home) -> None:
    """With the setting, a tag without a default and a value is a blocker; one with a default is not."""
    contact_ids = [home.contact("ann@example.org", first_name="Ann").id, home.contact("bo@example.org").id]
    contact_list = home.list_of(*contact_ids)
    without_default = home.campaign(contact_list.id, body="<p>Hi {{ contact.first_name }}</p>")
    with_default = home.campaign(
        contact_list.id, "Whole", body="<p>Hi {{ contact.first_name | default: 'friend' }}</p>"
    )
    assert preflight.run_preflight(home.account_id, without_default.id).ok
    transactions.write(Account.update(block_on_missing_variable=True).execute)
    result = preflight.run_preflight(home.account_id, without_default.id)

    assert [blocker.message for blocker in result.blockers] == [
        "contact.first_name is empty for 1 contact and has no fallback"
    ]
    assert preflight.run_preflight(home.account_id, with_default.id).ok
    with pytest.raises(Invalid):
        home.send(without_default)
