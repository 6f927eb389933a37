"""The media library: newest first, with the places that use a picture; pictures in use are not deleted."""

import json
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
from tests.kit.pictures import encode_image, hostile_file, photo


@pytest.fixture
def picture(home: Home, tmp_path: Path) -> Media:
    """A picture of the account."""
    return add_picture(home, tmp_path)


def add_picture(home: Home, folder: Path, name: str = "bread.png", account_id: int | None = None) -> Media:
    """Upload a picture as the API and the pages do."""
    path = folder / "file"
    path.write_bytes(encode_image(photo(64, 40), "PNG"))
    return transactions.write(media.add, account_id or home.account_id, name, media.prepare_upload(path))


def create_template(home: Home, **body: object) -> int:
    """Create a template as the API does and return its id."""
    return int(
        transactions.write(templates.create, home.account_id, validation.read(TemplateWrite, {"name": "T", **body})).id
    )


def test_a_file_that_is_not_a_picture_is_rejected(home: Home, tmp_path: Path) -> None:
    """The error is reported at `file`."""
    path = tmp_path / "file"
    path.write_bytes(hostile_file("svg"))
    with pytest.raises(Invalid) as error_info:
        media.prepare_upload(path)
    assert error_info.value.fields == {"file": ["is an SVG, which email apps do not show: export it as a PNG"]}


def test_pages_of_media_are_newest_first(home: Home, tmp_path: Path) -> None:
    """Pages leave out the content of the files; a search matches part of a file name, without wildcards."""
    for number in range(5):
        add_picture(home, tmp_path, f"{number}_{'roll' if number % 2 else 'bread'}.png")
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


def test_uses_of_a_picture_are_found(home: Home, picture: Media) -> None:
    """Templates (text, design or translation), campaigns, flows and the brand are searched for a picture."""
    url = media.public_url(picture.signed_id)
    assert media.find_uses(home.account_id, picture.id) == []

    design = {"sections": [{"type": "image", "props": {"src": url}, "styles": {}}], "theme": {}}
    text_template, design_template = (
        create_template(home, body=f'<img src="{url}">'),
        create_template(home, design=design),
    )
    create_template(home, body="<p>another</p>")
    translated_template = create_template(home, design={"sections": []})
    german = json.dumps({"de": {"i/props.src": {"source": "https://a.test/en.png", "text": url}}})
    transactions.write(run, "UPDATE template SET translations = ? WHERE id = ?", (german, translated_template))
    campaign = home.campaign(home.list_of().id, body=f'<img src="{url}">')
    transactions.write(lambda: Flow.create(account=home.account_id, name="Welcome", steps=[{"body": url}], created_at=0,
                                   updated_at=0))  # fmt: skip
    transactions.write(
        brand.update, home.account_id, validation.read(brand.BrandWrite, {"logo": url, "company_name": "Acme"})
    )
    uses = media.find_uses(home.account_id, picture.id)

    assert [next(iter(use)) for use in uses] == [*["template_id"] * 3, "campaign_id", "flow_id", "brand_id"]
    assert uses[0] == {"template_id": text_template, "name": "T"} and uses[1]["template_id"] == design_template
    assert uses[2]["template_id"] == translated_template and uses[4]["name"] == "Welcome"
    assert uses[3] == {"campaign_id": campaign.id, "name": "Spring"}


@pytest.mark.parametrize("name", ["default_header", "default_footer", "default_theme"])
def test_brand_defaults_count_as_use(home: Home, picture: Media, name: str) -> None:
    """A picture in the brand's default header, footer or theme is in use."""
    transactions.write(
        brand.update, home.account_id, validation.read(brand.BrandWrite, {name: {"logo_url": picture.signed_id}})
    )
    assert [next(iter(use)) for use in media.find_uses(home.account_id, picture.id)] == ["brand_id"]


def test_a_sent_campaign_keeps_its_pictures(home: Home, picture: Media) -> None:
    """A picture of a sent campaign is in use even after its template changed."""
    contact = home.contact("ann@example.org")
    url = media.public_url(picture.signed_id)
    campaign = home.send(home.campaign(home.list_of(contact.id).id, body=f'<img src="{url}">'))
    transactions.write(run, "UPDATE template SET body = 'other' WHERE id = ?", (campaign.template_id,))

    assert media.find_uses(home.account_id, picture.id) == [{"campaign_id": campaign.id, "name": "Spring"}]


def test_a_transactional_message_keeps_its_pictures(home: Home, picture: Media) -> None:
    """Pictures in transactional messages are in use."""
    body = {"to": "ann@example.org", "subject": "Hi", "body": f'<img src="{media.public_url(picture.signed_id)}">'}
    transactions.write(transactional.queue_message, home.account_id, validation.read(transactional.MessageWrite, body))

    assert media.find_uses(home.account_id, picture.id) == [{"messages": 1}]
    with pytest.raises(Invalid):
        media.require_unused(home.account_id, picture.id)


def test_a_picture_in_use_is_not_deleted(home: Home, picture: Media) -> None:
    """The error names what uses the picture; without uses it is deleted and no longer served."""
    template_id = create_template(home, body=f'<img src="{media.public_url(picture.signed_id)}">')
    with pytest.raises(Invalid) as error_info:
        transactions.write(media.delete, home.account_id, picture.id)
    assert (error_info.value.reason, error_info.value.extra["used_by"]) == (
        "in_use",
        [{"template_id": template_id, "name": "T"}],
    )
    assert media.find_served(picture.signed_id) is not None

    transactions.write(templates.delete, home.account_id, template_id)
    media.require_unused(home.account_id, picture.id)
    assert transactions.write(media.delete, home.account_id, picture.id).filename == "bread.png"
    assert media.find_served(picture.signed_id) is None and not media.exists(picture.signed_id)
    with pytest.raises(NotFound):
        media.get(home.account_id, picture.id)


def test_accounts_do_not_share_media(home: Home, picture: Media, tmp_path: Path) -> None:
    """Another account's pictures are not found, and a mention of one in this account's templates is not a use."""
    other = transactions.write(lambda: accounts.create("Elsewhere").id)
    theirs = add_picture(home, tmp_path, account_id=other)
    for function in (media.get, media.find_uses, media.require_unused):
        with pytest.raises(NotFound):
            function(home.account_id, theirs.id)
    with pytest.raises(NotFound):
        transactions.write(media.delete, home.account_id, theirs.id)
    create_template(home, body=theirs.signed_id)
    assert media.find_uses(other, theirs.id) == [] and media.fetch_page(other).total == 1
    assert media.find_signed_id(home.account_id, media.public_url(theirs.signed_id)) is None
