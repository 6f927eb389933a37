"""What is looked at before the writer has to: a verb that follows computes nothing of a text again."""

from typing import Any, Literal

import pytest

from appliance.accounts.audit import Actor
from appliance.campaigns import send
from appliance.campaigns import store as campaigns
from appliance.campaigns.store import CampaignPatch
from appliance.content.templates import store, validation
from appliance.content.templates.validation import TemplateWrite
from appliance.core import validation as fields
from appliance.core.errors import NotFound
from appliance.storage import transactions
from tests.domain.home import Home

DESIGN: dict[str, Any] = {"sections": [{"type": "text", "props": {"content": "<p>{{ contact.warmth }}</p>"}}]}


def looked() -> int:
    """Return how often the variables of a text were looked for."""
    return validation._find_variables.cache_info().misses


def forget() -> None:
    """Begin as a service that has been doing other things."""
    validation._find_variables.cache_clear()


def test_a_change_of_a_campaign_computes_nothing_again(home: Home) -> None:
    """Its template has texts that the change does not name; they count as much."""
    draft = home.campaign(home.list_of().id, preheader="For {{ contact.first_name }}")
    for change in ({"design": DESIGN}, {"subject": "Other"}, {"from_name": "Ann"}):
        request = fields.read(CampaignPatch, {"template_attributes": change})
        forget()
        campaigns.warm(home.account_id, draft.id, request.template_attributes)
        before = looked()
        done = transactions.write(send.update, home.account_id, draft.id, request, Actor("key:1"))
        assert before > 0 and looked() == before, change
    assert set(done.template.variables) == {"contact.first_name", "contact.warmth"}


@pytest.mark.parametrize("way", ["undo", 1, "redo"])
def test_a_step_in_the_history_computes_nothing_again(way: Literal["undo", "redo"] | int, home: Home) -> None:
    """Wherever it goes, the variables are known before."""
    one = transactions.write(store.create, home.account_id, fields.read(TemplateWrite, {"design": DESIGN})).id
    transactions.write(
        store.update, home.account_id, one, fields.read(TemplateWrite, {"design": {}, "subject": "Bare"})
    )
    if way == "redo":
        transactions.write(store.undo, home.account_id, one)
    forget()
    store.warm_revision(home.account_id, one, way)
    before = looked()
    if isinstance(way, int):
        row = transactions.write(store.restore, home.account_id, one, way)
    else:
        row = transactions.write(getattr(store, way), home.account_id, one)
    assert before == 1 and looked() == before
    assert set(row.variables) == (set() if way == "redo" else {"contact.warmth"})


def test_another_name_or_sender_is_no_other_text(home: Home) -> None:
    """What no variable stands in is not asked about."""
    one = transactions.write(store.create, home.account_id, fields.read(TemplateWrite, {"design": DESIGN})).id
    before = looked()
    said = {"name": "Else", "reply_to": "back@example.org", "from_email": "us@example.org"}
    transactions.write(store.update, home.account_id, one, fields.read(TemplateWrite, said))
    assert looked() == before


def test_what_is_not_there_is_not_warmed(home: Home) -> None:
    """Nor is what belongs to another account."""
    draft = home.campaign(home.list_of().id)
    body = fields.read(TemplateWrite, {"design": DESIGN})
    for account, number in ((home.account_id + 1, draft.id), (home.account_id, draft.id + 1)):
        with pytest.raises(NotFound):
            campaigns.warm(account, number, body)
    with pytest.raises(NotFound):
        store.warm_revision(home.account_id + 1, draft.template_id, "undo")
