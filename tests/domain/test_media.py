"""Pictures that are kept: newest first, told where they are used, deleted only when nothing shows them."""

from pathlib import Path

import pytest

from appliance.accounts import accounts
from appliance.content import brand, media
from appliance.content.templates import store as templates
from appliance.content.templates.validation import TemplateWrite
from appliance.core import validation
from appliance.core.errors import Invalid, NotFound
from appliance.sending.messages import transactional
from appliance.storage import transactions
from appliance.storage.database import rows, run
from appliance.storage.models import Flow, Media
from tests.domain.home import Home
from tests.kit.pictures import hostile, photo, saved


@pytest.fixture
def picture(home: Home, tmp_path: Path) -> Media:
    """A picture of the account."""
    return add(home, tmp_path)


def add(home: Home, folder: Path, name: str = "bread.png", account_id: int | None = None) -> Media:
    """Upload a picture as the doors do."""
    path = folder / "file"
    path.write_bytes(saved(photo(64, 40), "PNG"))
    return transactions.write(media.add, account_id or home.account_id, name, media.prepare_upload(path))


def template(home: Home, **body: object) -> int:
    """Make a template as the API does."""
    return int(
        transactions.write(templates.create, home.account_id, validation.read(TemplateWrite, {"name": "T", **body})).id
    )


def test_a_file_that_is_no_picture_is_refused_at_its_field(home: Home, tmp_path: Path) -> None:
    """The words of a refusal stand under `file`."""
    path = tmp_path / "file"
    path.write_bytes(hostile()["svg"])
    with pytest.raises(Invalid) as told:
        media.prepare_upload(path)
    assert told.value.fields == {"file": ["is an SVG, which mail programs do not show: export it as a PNG"]}


def test_pages_are_newest_first_and_leave_the_content(home: Home, tmp_path: Path) -> None:
    """A drawer of pictures reads names and sizes alone; a search takes a part of a name, as it is written."""
    for number in range(5):
        add(home, tmp_path, f"{number}_{'roll' if number % 2 else 'bread'}.png")
    first, last = media.fetch_page(home.account_id, 1, 2), media.fetch_page(home.account_id, 3, 2)

    assert [row.filename[0] for row in first.rows] == ["4", "3"] and first.total == 5
    assert [row.filename[0] for row in last.rows] == ["0"]
    assert media.fetch_page(home.account_id, 9, 2).rows == []
    assert [row.filename for row in media.fetch_page(home.account_id, search="ROLL").rows] == [
        "3_roll.png",
        "1_roll.png",
    ]
    assert media.fetch_page(home.account_id, search="%").total == 0
    assert "content" not in first.rows[0].__data__
    plan = rows("EXPLAIN QUERY PLAN SELECT id FROM media WHERE account_id = 1 ORDER BY id DESC LIMIT 2")
    assert "USING" in plan[0][3] and "TEMP B-TREE" not in str(plan)


def test_a_picture_is_found_wherever_it_is_used(home: Home, picture: Media) -> None:
    """In a template's text or design, a campaign, a flow, the brand, and in messages of their own."""
    url = media.public_url(picture.signed_id)
    assert media.find_uses(home.account_id, picture.id) == []

    design = {"sections": [{"type": "image", "props": {"src": url}, "styles": {}}], "theme": {}}
    by_text, by_design = template(home, body=f'<img src="{url}">'), template(home, design=design)
    template(home, body="<p>another</p>")
    campaign = home.campaign(home.list_of().id, body=f'<img src="{url}">')
    transactions.write(lambda: Flow.create(account=home.account_id, name="Welcome", steps=[{"body": url}], created_at=0,
                                   updated_at=0))  # fmt: skip
    transactions.write(
        brand.update, home.account_id, validation.read(brand.BrandWrite, {"logo": url, "company_name": "Acme"})
    )
    used = media.find_uses(home.account_id, picture.id)

    assert [next(iter(one)) for one in used] == ["template_id", "template_id", "campaign_id", "flow_id", "brand_id"]
    assert used[0] == {"template_id": by_text, "name": "T"} and used[1]["template_id"] == by_design
    assert used[2] == {"campaign_id": campaign.id, "name": "Spring"} and used[3]["name"] == "Welcome"


@pytest.mark.parametrize("name", ["default_header", "default_footer", "default_theme"])
def test_a_brands_defaults_count(home: Home, picture: Media, name: str) -> None:
    """A picture in what a brand gives every header, footer and theme is in use."""
    transactions.write(
        brand.update, home.account_id, validation.read(brand.BrandWrite, {name: {"logo_url": picture.signed_id}})
    )
    assert [next(iter(one)) for one in media.find_uses(home.account_id, picture.id)] == ["brand_id"]


def test_what_a_campaign_sent_keeps_its_pictures(home: Home, picture: Media) -> None:
    """A campaign that went out shows its pictures in the mailboxes, whatever its template says since."""
    person = home.contact("ann@example.org")
    url = media.public_url(picture.signed_id)
    campaign = home.send(home.campaign(home.list_of(person.id).id, body=f'<img src="{url}">'))
    transactions.write(run, "UPDATE template SET body = 'other' WHERE id = ?", (campaign.template_id,))

    assert media.find_uses(home.account_id, picture.id) == [{"campaign_id": campaign.id, "name": "Spring"}]


def test_a_single_message_keeps_its_pictures(home: Home, picture: Media) -> None:
    """Messages of their own are counted."""
    body = {"to": "ann@example.org", "subject": "Hi", "body": f'<img src="{media.public_url(picture.signed_id)}">'}
    transactions.write(transactional.queue_message, home.account_id, validation.read(transactional.MessageWrite, body))

    assert media.find_uses(home.account_id, picture.id) == [{"messages": 1}]
    with pytest.raises(Invalid):
        media.require_unused(home.account_id, picture.id)


def test_only_what_nothing_shows_is_deleted(home: Home, picture: Media) -> None:
    """A picture in use stays and says by what; one that is not is gone, for everybody."""
    number = template(home, body=f'<img src="{media.public_url(picture.signed_id)}">')
    with pytest.raises(Invalid) as told:
        transactions.write(media.delete, home.account_id, picture.id)
    assert (told.value.reason, told.value.extra["used_by"]) == ("in_use", [{"template_id": number, "name": "T"}])
    assert media.find_served(picture.signed_id) is not None

    transactions.write(templates.delete, home.account_id, number)
    media.require_unused(home.account_id, picture.id)
    assert transactions.write(media.delete, home.account_id, picture.id).filename == "bread.png"
    assert media.find_served(picture.signed_id) is None and not media.exists(picture.signed_id)
    with pytest.raises(NotFound):
        media.get(home.account_id, picture.id)


def test_pictures_of_others_are_not_there(home: Home, picture: Media, tmp_path: Path) -> None:
    """Another account sees none of them, cannot delete them, and what it writes does not count as use."""
    other = transactions.write(lambda: accounts.create("Elsewhere").id)
    theirs = add(home, tmp_path, account_id=other)
    for reach in (media.get, media.find_uses, media.require_unused):
        with pytest.raises(NotFound):
            reach(home.account_id, theirs.id)
    with pytest.raises(NotFound):
        transactions.write(media.delete, home.account_id, theirs.id)
    template(home, body=theirs.signed_id)
    assert media.find_uses(other, theirs.id) == [] and media.fetch_page(other).total == 1
    assert media.find_signed_id(home.account_id, media.public_url(theirs.signed_id)) is None
