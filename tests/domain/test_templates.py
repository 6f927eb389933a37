"""Templates: which old revisions stay, what a change asks of a campaign again, and what is kept of a field."""

from typing import Any

import pytest

from appliance.campaigns import store as campaigns
from appliance.campaigns.store import CampaignCreate
from appliance.content.designs.theme import Look
from appliance.content.templates import revisions, starters, store, validation
from appliance.content.templates.validation import TemplateWrite
from appliance.core import validation as fields
from appliance.core.validation import PageQuery
from appliance.storage import transactions
from appliance.storage.database import rows, run
from appliance.storage.models import Campaign, Template
from tests.domain.home import Home


def save(home: Home, template_id: int, **body: Any) -> Template:
    """Change a template."""
    return transactions.write(store.update, home.account_id, template_id, fields.read(TemplateWrite, body))


def kept(template_id: int) -> list[int]:
    """Return the numbers of the revisions that are kept."""
    return [row[0] for row in rows("SELECT number FROM template_revision WHERE template_id = ?", (template_id,))]


def fill_up(home: Home, template_id: int, times: int = revisions.MAX_KEPT_EDITS + 30) -> None:
    """Save until all that was there before is old."""
    for number in range(times):
        save(home, template_id, subject=f"late {number}")
    transactions.write(revisions.prune, template_id)


def test_what_was_sent_or_is_brought_back_stays(home: Home) -> None:
    """What a kept edit brought back stays as long as that one does; what a campaign sent stays, named or not."""
    one = transactions.write(
        store.create, home.account_id, fields.read(TemplateWrite, {"name": "T", "subject": "0"})
    ).id
    for number in range(8):
        save(home, one, subject=f"early {number}")
    transactions.write(store.restore, home.account_id, one, 3)
    transactions.write(revisions.name_revision, home.account_id, one, 10, "Back again")
    transactions.write(store.restore, home.account_id, one, 4)
    fill_up(home, one)
    assert {1, 3, 10} <= set(kept(one)) and not {2, 4, 5, 6, 7, 8, 9, 11} & set(kept(one))

    campaign = home.campaign(home.list_of().id)
    mine = int(campaign.template_id)
    for number in range(8):
        save(home, mine, subject=f"early {number}")
    sent = rows("SELECT id FROM template_revision WHERE template_id = ? AND number = 4", (mine,))[0][0]
    transactions.write(run, "UPDATE campaign SET content_id = ? WHERE id = ?", (sent, campaign.id))
    fill_up(home, mine)
    assert kept(mine)[:2] == [1, 4]


def test_old_steps_go_and_what_they_brought_back_is_there(home: Home) -> None:
    """Going back and forth without an end leaves the edits, and no more steps than edits are kept."""
    one = transactions.write(
        store.create, home.account_id, fields.read(TemplateWrite, {"name": "T", "subject": "0"})
    ).id
    save(home, one, subject="1")
    for _ in range(120):
        transactions.write(store.undo, home.account_id, one)
        transactions.write(store.redo, home.account_id, one)
    transactions.write(revisions.prune, one)
    found = revisions.fetch_page(home.account_id, one, PageQuery(limit=100))

    assert kept(one)[:2] == [1, 2] and found.total == revisions.MAX_KEPT_EDITS + 2
    assert transactions.write(store.undo, home.account_id, one).subject == "0"
    assert transactions.write(store.redo, home.account_id, one).subject == "1"


@pytest.mark.parametrize("required", [True, False])
def test_a_changed_campaign_asks_for_approval_again(home: Home, required: bool) -> None:
    """Where an account wants approval an armed campaign goes back to draft; otherwise it stays armed."""
    body = {"name": "Later", "scheduled_at": "2099-01-01T09:00:00Z",
            "trigger_attributes": {"contact_list_id": home.list_of(home.contact("ann@example.org").id).id},
            "template_attributes": {"subject": "Hello", "body": "<p>Hi</p>"}}  # fmt: skip
    armed = home.send(transactions.write(campaigns.create, home.account_id, fields.read(CampaignCreate, body)))
    assert (armed.phase, armed.approval_state) == ("scheduled", "approved")
    transactions.write(run, "UPDATE account SET approval_required = ?", (required,))
    save(home, armed.template_id, subject="Hello")
    assert Campaign.get_by_id(armed.id).approval_state == "approved"
    save(home, armed.template_id, subject="Something else")
    found = Campaign.get_by_id(armed.id)

    assert found.approval_state == "pending_review"
    assert (found.status, found.phase) == (("draft", "draft") if required else (armed.status, "scheduled"))


def test_what_is_kept_of_a_field(home: Home) -> None:
    """Lines without spaces around them and nothing for an empty one; a body as it came; a section's own id stays."""
    made = transactions.write(store.create, home.account_id, fields.read(TemplateWrite, {
        "name": "  Monthly ", "subject": " Hi ", "preheader": "  ", "body": "  <p>x</p>\n",
    }))  # fmt: skip
    assert (made.name, made.subject, made.preheader, made.body) == ("Monthly", "Hi", None, "  <p>x</p>\n")
    text = {"type": "text", "props": {"content": "x"}}
    first = validation.set_ids({"sections": [text]})["sections"][0]["id"]
    again = validation.set_ids({"sections": [{"type": "spacer", "id": first, "props": {}}, text, text]})["sections"]
    assert again[0]["id"] == first and len({one["id"] for one in again}) == 3


def test_a_copy_of_a_long_name_can_be_saved_again(home: Home) -> None:
    """It says that it is a copy, within the length of a name; one without a name is called by its subject."""
    long = transactions.write(store.create, home.account_id, fields.read(TemplateWrite, {"name": "n" * 255}))
    copy = transactions.write(store.duplicate, home.account_id, long.id)
    assert copy.name.endswith(" (copy)") and len(copy.name) <= 255
    assert save(home, copy.id, name=copy.name).name == copy.name
    campaign = home.campaign(home.list_of().id)
    assert transactions.write(store.duplicate, home.account_id, campaign.template_id).name == "Hello (copy)"


def test_starters_lead_to_the_brands_own_place() -> None:
    """Every button of the six leads to the first web address of the brand, or where there is none to an example."""

    def leads(look: Look) -> set[str]:
        return {href for one in starters.build_starters(look) for href in _hrefs(one.design)}

    assert leads(Look(links=(("", "mailto:a@acme.example"), ("Shop", "https://acme.example/shop"),
                             ("Old", "https://old.example")))) == {"https://acme.example/shop"}  # fmt: skip
    assert leads(Look()) == {"https://example.com"}


def _hrefs(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value[name] for name in ("href", "cta_url") if isinstance(value.get(name), str)]
        return own + [one for name, inner in value.items() if name != "links" for one in _hrefs(inner)]
    return [one for inner in value for one in _hrefs(inner)] if isinstance(value, list) else []
