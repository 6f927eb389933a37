"""The brand over the API (docs/decisions.md#14)."""

from typing import Any

import pytest

from tests.api.test_threats_pages import Visitor
from tests.kit.client import Client
from tests.kit.pictures import encode_image, photo
from tests.kit.server import EMAIL, Server
from tests.kit.uploads import upload_image

WRITABLE: dict[str, Any] = {
    "brand_color": "#0F617d", "text_color": "#222222", "bg_color": "#fffdf8", "font_heading": "Georgia",
    "font_body": "Helvetica Neue", "style_notes": "Quiet.\nNo shadows.", "tone": "warm", "company_description": "Bread",
    "industry": "Food", "physical_address": "1 Mill Lane\nBath", "company_name": "Bäckerei & Söhne",
    "logo": "https://example.org/logo.png?v=2", "example_copy": ["Good morning!", "Fresh at six."],
    "links": [{"url": "https://example.org/", "icon": "web", "title": "Shop"},
              {"url": "mailto:hi@example.org?subject=Hello%20you", "icon": "", "title": ""}],
    "default_header": {"layout": "centered", "logo_width": 180, "links": [{"text": "Shop", "href": "https://x.example"}]},
    "default_footer": {"unsubscribe_text": "No more {{ contact.first_name }}", "text": "<p>Bye</p>", "mystery": [1]},
    "default_theme": {"brand_color": "#0f617d", "bg_color": "white", "font_body": "Georgia", "width": 640},
}  # fmt: skip


def update_brand(api: Client, **body: Any) -> Any:
    """Return the brand after a change."""
    return api.put("/brand", body).expect(200)


def test_all_brand_fields_are_stored(api: Client) -> None:
    """All written fields are returned unchanged by PUT and GET; no URL is fetched."""
    written = update_brand(api, **WRITABLE)

    assert {name: written[name] for name in WRITABLE} == WRITABLE
    assert (written["complete"], written["source_url"], written["last_scraped_at"]) == (True, None, None)
    assert api.get("/brand").expect(200) == written


def test_absent_brand_fields_stay_and_null_clears(api: Client) -> None:
    """A change of one field keeps the others; null and a blank text reset it."""
    before = update_brand(api, **WRITABLE)
    assert update_brand(api) | {"updated_at": 0} == before | {"updated_at": 0}
    empty = {"links": [], "default_header": {}, "default_footer": {}, "default_theme": {}}
    for name in WRITABLE:
        after = update_brand(api, **{name: None})
        assert after[name] == empty.get(name), name
        assert {key: after[key] for key in WRITABLE if key != name} == {
            key: before[key] for key in WRITABLE if key != name
        }, name
        update_brand(api, **{name: WRITABLE[name]})
    assert (update_brand(api, tone="  ")["tone"], update_brand(api, logo="")["logo"]) == (None, None)
    assert update_brand(api, company_name=None)["complete"] is False


def test_read_only_brand_fields_are_ignored(api: Client) -> None:
    """Read-only fields are ignored and listed in `X-Ignored-Fields`."""
    before = update_brand(api)
    response = api.put("/brand", {"id": 99, "complete": True, "source_url": "https://x.example", "company_name": "New"})

    assert response.expect(200)["company_name"] == "New"
    assert (response.json["id"], response.json["source_url"]) == (before["id"], None)
    assert set(response.headers["X-Ignored-Fields"].split(", ")) == {"id", "complete", "source_url"}


@pytest.mark.parametrize(
    ("body", "faults"),
    [
        ({"brand_color": "#fff", "text_color": "red", "bg_color": "#12345g"},
         {"brand_color", "text_color", "bg_color"}),
        ({"brand_color": "#0f617d\n", "text_color": 3}, {"brand_color", "text_color"}),
        ({"company_name": "a\nb", "industry": "x" * 256}, {"company_name", "industry"}),
        ({"example_copy": "text", "links": {}}, {"example_copy", "links"}),
        ({"links": [{"url": "https://example.org"}, {"url": "javascript:alert(1)"}, {"url": "data:text/html,x"}]},
         {"links[1].url", "links[2].url"}),
        ({"links": [{"url": "http://"}, {"url": "mailto:"}, {"url": "http://["}, {"url": "example.org"}, {"url": ""}]},
         {f"links[{index}].url" for index in range(5)}),
        ({"links": [{"url": "https://a b.example"}, {"url": "https://a.example/ b"}]},
         {"links[0].url", "links[1].url"}),
        ({"links": [{"url": "https://a.example/\u0000"}, {"title": "no"}]}, {"links[0].url", "links[1].url"}),
        ({"logo": "http://"}, {"logo"}),
        ({"logo": "data:image/png;base64,AAAA"}, {"logo"}),
        ({"logo": "A" * 32}, {"logo"}),
        ({"logo": "ftp://example.org/logo.png"}, {"logo"}),
        ({"default_header": [], "default_footer": "x", "default_theme": 3},
         {"default_header", "default_footer", "default_theme"}),
        ({"default_header": {"logo_url": "javascript:alert(1)", "links": [{"href": "vbscript:x"}]}},
         {"default_header.logo_url", "default_header.links[0].href"}),
        ({"default_header": {"links": {}}}, {"default_header.links"}),
        ({"default_header": {"type": "header", "props": {"wordmark_text": "{{ oops"}}},
         {"default_header.props.wordmark_text"}),
        ({"default_footer": {"text": "{% for x in y %}", "unsubscribe_text": {}}},
         {"default_footer.text", "default_footer.unsubscribe_text"}),
        ({"default_theme": {"brand_color": "#12", "text_color": 5, "bg_color": "theme:bg", "font_body": []}},
         {f"default_theme.{name}" for name in ("brand_color", "text_color", "bg_color", "font_body")}),
        ({"default_theme": {"logo_url": "javascript:alert(1)"}}, {"default_theme.logo_url"}),
        ({"default_theme": {"x": "y" * 40_000}}, {"default_theme"}),
    ],
)  # fmt: skip
def test_brand_errors_are_reported_at_their_paths(api: Client, body: dict[str, Any], faults: set[str]) -> None:
    """All errors are reported at once, each at its path, and nothing is written."""
    before = api.get("/brand").json

    assert set(api.put("/brand", body).expect(422)["validation_errors"]) == faults
    assert api.get("/brand").json == before


def test_an_uploaded_logo(api: Client, server: Server) -> None:
    """The signed id of an upload sets the logo; its URL is returned and shown on pages and in emails."""
    created = upload_image(api, encode_image(photo(), "PNG")).expect(201)

    assert update_brand(api, logo=created["signed_id"])["logo"] == created["url"]
    assert update_brand(api, logo=created["url"])["logo"] == created["url"]
    assert f'value="{created["url"]}"' in Visitor(server, EMAIL).send("GET", "/brand").text
    preview = api.post("/templates/preview", {"document": {"sections": [{"type": "header", "props": {}}]}}).expect(200)
    assert created["url"] in preview["html"]


def test_a_logo_of_another_account(server: Server, api: Client) -> None:
    """The signed id of another account's upload is rejected; its public URL is accepted."""
    account_id = server.cli("account", "add", "Elsewhere").stdout.strip()
    theirs = server.client(server.new_key("theirs", "--account", account_id))
    created = upload_image(theirs, encode_image(photo(), "PNG")).expect(201)

    assert set(api.put("/brand", {"logo": created["signed_id"]}).expect(422)["validation_errors"]) == {"logo"}
    assert update_brand(api, logo=created["url"])["logo"] == created["url"]


def test_brand_defaults_apply_to_headers_and_footers(api: Client) -> None:
    """Defaults fill empty sections, written as properties or as a whole section."""
    update_brand(api, company_name="Bakery", logo=None, default_footer={"unsubscribe_text": "Let me go"})
    update_brand(api, default_header={"type": "header", "props": {"wordmark_text": "The Mill"}})
    document = {"sections": [{"type": "header", "props": {}}, {"type": "footer", "props": {}}]}
    html = api.post("/templates/preview", {"document": document}).expect(200)["html"]

    assert "The Mill" in html and "Let me go" in html
