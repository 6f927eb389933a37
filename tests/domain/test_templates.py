"""Templates: revisions that are kept, approval after changes, and how fields are stored."""

from typing import Any

import pytest

from appliance.campaigns import store as campaigns
from appliance.campaigns.store import CampaignCreate
from appliance.content.designs.theme import Look
from appliance.content.templates import revisions, starters, store, template_edits, validation
from appliance.content.templates.validation import TemplateWrite
from appliance.core import validation as fields
from appliance.core.validation import PageQuery
from appliance.storage import transactions
from appliance.storage.database import rows, run
from appliance.storage.models import Campaign, Template
from tests.domain.home import Home


def update(home: Home, template_id: int, **body: Any) -> Template:
    """Change a template."""
    return transactions.write(store.update, home.account_id, template_id, fields.read(TemplateWrite, body))


def list_revision_numbers(template_id: int) -> list[int]:
    """Return the numbers of the stored revisions."""
    return [row[0] for row in rows("SELECT number FROM template_revision WHERE template_id = ?", (template_id,))]


def add_edits(home: Home, template_id: int, times: int = revisions.MAX_KEPT_EDITS + 30) -> None:
    """Save so many edits that all earlier ones are old, then prune."""
    for number in range(times):
        update(home, template_id, subject=f"late {number}")
    transactions.write(revisions.prune, template_id)


def test_sent_and_restored_revisions_are_kept(home: Home) -> None:
    """A revision is kept as long as a kept one restored it, or if a campaign sent it."""
    template_id = transactions.write(
        store.create, home.account_id, fields.read(TemplateWrite, {"name": "T", "subject": "0"})
    ).id
    for number in range(8):
        update(home, template_id, subject=f"early {number}")
    transactions.write(template_edits.restore, home.account_id, template_id, 3)
    transactions.write(revisions.name_revision, home.account_id, template_id, 10, "Back again")
    transactions.write(template_edits.restore, home.account_id, template_id, 4)
    add_edits(home, template_id)
    assert {1, 3, 10} <= set(list_revision_numbers(template_id)) and not {2, 4, 5, 6, 7, 8, 9, 11} & set(
        list_revision_numbers(template_id)
    )

    campaign = home.campaign(home.list_of().id)
    campaign_template_id = int(campaign.template_id)
    for number in range(8):
        update(home, campaign_template_id, subject=f"early {number}")
    sent_revision_id = rows(
        "SELECT id FROM template_revision WHERE template_id = ? AND number = 4", (campaign_template_id,)
    )[0][0]
    transactions.write(run, "UPDATE campaign SET content_id = ? WHERE id = ?", (sent_revision_id, campaign.id))
    add_edits(home, campaign_template_id)
    assert list_revision_numbers(campaign_template_id)[:2] == [1, 4]


def test_old_undo_and_redo_steps_are_pruned(home: Home) -> None:
    """Of many undo and redo steps the last `MAX_KEPT_EDITS` are kept, and undo and redo still work."""
    template_id = transactions.write(
        store.create, home.account_id, fields.read(TemplateWrite, {"name": "T", "subject": "0"})
    ).id
    update(home, template_id, subject="1")
    for _ in range(120):
        transactions.write(template_edits.undo, home.account_id, template_id)
        transactions.write(template_edits.redo, home.account_id, template_id)
    transactions.write(revisions.prune, template_id)
    page = revisions.fetch_page(home.account_id, template_id, PageQuery(limit=100))

    assert list_revision_numbers(template_id)[:2] == [1, 2] and page.total == revisions.MAX_KEPT_EDITS + 2
    assert transactions.write(template_edits.undo, home.account_id, template_id).subject == "0"
    assert transactions.write(template_edits.redo, home.account_id, template_id).subject == "1"


@pytest.mark.parametrize("is_required", [True, False])
def test_a_changed_campaign_needs_approval_again(home: Home, is_required: bool) -> None:
    """If the account requires approval a scheduled campaign returns to draft; otherwise it stays scheduled."""
    body = {"name": "Later", "scheduled_at": "2099-01-01T09:00:00Z",
            "trigger_attributes": {"contact_list_id": home.list_of(home.contact("ann@example.org").id).id},
            "template_attributes": {"subject": "Hello", "body": "<p>Hi</p>"}}  # fmt: skip
    scheduled = home.send(transactions.write(campaigns.create, home.account_id, fields.read(CampaignCreate, body)))
    assert (scheduled.phase, scheduled.approval_state) == ("scheduled", "approved")
    transactions.write(run, "UPDATE account SET approval_required = ?", (is_required,))
    update(home, scheduled.template_id, subject="Hello")
    assert Campaign.get_by_id(scheduled.id).approval_state == "approved"
    update(home, scheduled.template_id, subject="Something else")
    changed = Campaign.get_by_id(scheduled.id)

    assert changed.approval_state == "pending_review"
    assert (changed.status, changed.phase) == (("draft", "draft") if is_required else (scheduled.status, "scheduled"))


def test_normalization_of_fields(home: Home) -> None:
    """Single-line fields are stripped and None if empty, a body is unchanged, and section ids are unique."""
    template = transactions.write(store.create, home.account_id, fields.read(TemplateWrite, {
        "name": "  Monthly ", "subject": " Hi ", "preheader": "  ", "body": "  <p>x</p>\n",
    }))  # fmt: skip
    assert (template.name, template.subject, template.preheader, template.body) == (
        "Monthly",
        "Hi",
        None,
        "  <p>x</p>\n",
    )
    text = {"type": "text", "props": {"content": "x"}}
    first_id = validation.set_ids({"sections": [text]})["sections"][0]["id"]
    sections = validation.set_ids({"sections": [{"type": "spacer", "id": first_id, "props": {}}, text, text]})[
        "sections"
    ]
    assert sections[0]["id"] == first_id and len({section["id"] for section in sections}) == 3


def test_the_name_of_a_copy_has_a_valid_length(home: Home) -> None:
    """A copy's name ends in `(copy)` within the limit; without a name the subject is used."""
    template = transactions.write(store.create, home.account_id, fields.read(TemplateWrite, {"name": "n" * 255}))
    copy = transactions.write(store.duplicate, home.account_id, template.id)
    assert copy.name.endswith(" (copy)") and len(copy.name) <= 255
    assert update(home, copy.id, name=copy.name).name == copy.name
    campaign = home.campaign(home.list_of().id)
    assert transactions.write(store.duplicate, home.account_id, campaign.template_id).name == "Hello (copy)"


def test_starters_link_to_the_brand() -> None:
    """The buttons of all starters link to the brand's first web URL, or else to an example."""

    def collect_links(look: Look) -> set[str]:
        return {href for starter in starters.build_starters(look) for href in _find_hrefs(starter.email.design)}

    assert collect_links(Look(links=(("", "mailto:a@acme.example"), ("Shop", "https://acme.example/shop"),
                             ("Old", "https://old.example")))) == {"https://acme.example/shop"}  # fmt: skip
    assert collect_links(Look()) == {"https://example.com"}


def _find_hrefs(value: Any) -> list[str]:
    if isinstance(value, dict):
        urls = [value[name] for name in ("href", "cta_url") if isinstance(value.get(name), str)]
        return urls + [url for name, inner in value.items() if name != "links" for url in _find_hrefs(inner)]
    return [url for inner in value for url in _find_hrefs(inner)] if isinstance(value, list) else []
