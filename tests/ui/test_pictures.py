"""The pictures pages: uploading, URLs, usage and deletion."""

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.conftest import FreshServer
from tests.kit.browser import Problems, new_page, save_screenshot, sign_in
from tests.kit.client import Client
from tests.kit.html_page import HtmlPage, select, text_of
from tests.kit.pictures import encode_image, hostile_file, photo
from tests.kit.sampling import full_only
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import PASSWORD, Server
from tests.kit.uploads import multipart_form, upload_image

PNG = encode_image(photo(), "PNG")
# A name with markup, and one without a place to wrap
MARKUP_NAME, LONG_NAME = "<i onclick='x'>&{{ 7 * 7 }}.png", "w" * 250 + ".png"


@pytest.fixture
def empty_server(fresh_server: FreshServer, browser: Browser) -> Iterator[tuple[Server, Page]]:
    """A server without pictures, and a page signed in as its owner."""
    server, problems = fresh_server(), Problems()
    page = sign_in(new_page(browser, server.url, problems))
    yield server, page
    page.context.close()
    assert not problems.found


def upload_by_form(page: Page, name: str, content: bytes) -> None:
    """Upload a file by the form."""
    with tempfile.TemporaryDirectory() as place:  # by its path, since a payload of megabytes takes seconds
        path = Path(place) / name
        path.write_bytes(content)
        page.get_by_label("Image file").set_input_files(path)
        with page.expect_response(lambda answer: answer.request.method == "POST"):
            page.get_by_role("button", name="Upload image").click()


def upload_without_script(user: ScriptlessBrowser, name: str, content: bytes) -> HtmlPage:
    """Upload a file by the form as a browser without scripts does."""
    page = HtmlPage(user, "/templates/pictures")
    page.attach("Image file", name, content)
    return page.press("Upload image")


def add(api: Client, name: str = "bread.png", content: bytes = PNG) -> str:
    """Upload a picture over the API and return its URL."""
    return str(upload_image(api, content, name).expect(201)["url"])


def newest_path(user: ScriptlessBrowser) -> str:
    """Return the page path of the newest picture."""
    match = re.search(r'href="(/templates/pictures/\d+)"', user.get("/templates/pictures"))
    assert match is not None
    return match[1]


def natural_size(page: Page, picture: str) -> list[int]:
    """Wait until a picture is loaded and return its natural size in pixels."""
    page.wait_for_function("one => { const i = document.querySelector(one); return i?.complete && i.naturalWidth }",
                           arg=picture)  # fmt: skip
    return list(page.eval_on_selector(picture, "i => [i.naturalWidth, i.naturalHeight]"))


def test_uploading_a_picture(empty_server: tuple[Server, Page]) -> None:
    """An uploaded picture has a public URL, a thumbnail in the list, and is found by search."""
    server, page = empty_server
    page.goto("/templates")
    page.get_by_role("link", name="Images").click()
    expect(page.locator("main")).to_contain_text("No images yet")
    save_screenshot(page, "pictures-empty")
    upload_by_form(page, "Bäckerei.png", PNG)
    expect(page.locator(".toast")).to_contain_text("Image uploaded.")
    expect(page.get_by_role("heading", level=1)).to_have_text("Bäckerei.png")
    expect(page.locator("main")).to_contain_text("640 × 400")
    assert natural_size(page, "main img") == [640, 400]
    address = page.get_by_role("button", name="Copy URL").get_attribute("data-copy") or ""
    assert re.fullmatch(rf"{server.url}/m/\w{{32}}", address)
    assert server.client().request("GET", address.removeprefix(server.url)).headers["content-type"] == "image/png"
    page.get_by_role("button", name="Copy URL").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    add(server.client(), "second.png")
    page.get_by_role("link", name="Images").click()
    expect(page.locator(".tile .name")).to_have_text(["second.png", "Bäckerei.png"])
    assert natural_size(page, ".tile img") == [480, 300]
    thumbnail = page.request.get(page.locator(".tile img").last.get_attribute("src") or "")
    assert thumbnail.headers["content-type"] == "image/webp" and "immutable" in thumbnail.headers["cache-control"]
    assert len(thumbnail.body()) * 5 < len(PNG) and page.request.get("/templates/pictures/1/900").status == 404
    page.get_by_label("Search images").fill("CKER")
    expect(page.locator(".tile .name")).to_have_text(["Bäckerei.png"])
    page.get_by_label("Search images").fill("cake")
    expect(page.locator("#rows")).to_contain_text("No images match “cake”")
    save_screenshot(page, "pictures-no-match")
    page.get_by_role("link", name="Clear search").click()
    expect(page.locator(".tile")).to_have_count(2)


def test_invalid_pictures_are_rejected(empty_server: tuple[Server, Page], full: bool) -> None:
    """Missing, invalid, SVG, too large and incomplete files are errors at the field; nothing is stored."""
    server, page = empty_server
    page.goto("/templates/pictures")
    page.get_by_role("button", name="Upload image").click()
    expect(page.locator("#f-file-err")).to_have_text("Select an image file.")
    expect(page.locator("#f-file")).to_be_focused()
    upload_by_form(page, "logo.png", PNG + b"\0" * ((40 if full else 6) << 20))
    expect(page.locator("#f-file-err")).to_contain_text("larger than 5 MB")
    save_screenshot(page, "pictures-refused")
    expect(page.locator("main")).to_contain_text("No images yet")
    user = ScriptlessBrowser(server.client())
    for message, content in {
        "This file cannot be used: it is not a PNG, JPEG, GIF or WebP image.": b"Dear Anna",
        "This file cannot be used: it is an SVG, which email apps do not show: export it as a PNG.": hostile_file(
            "svg"
        ),
        "This file is larger than 5 MB. Upload a smaller image.": PNG + b"\0" * (6 << 20),
    }.items():
        assert upload_without_script(user, "logo.png", content).texts("#f-file-err") == [message]
    empty = user.submit("/templates/pictures", file="x")
    assert empty.status == 422 and "Select an image file" in empty.text
    head = '--b\r\nContent-Disposition: form-data; name="file"; filename="a.png"\r\n\r\n'
    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    broken = user.request("POST", "/templates/pictures", head.encode() + PNG, **headers)
    assert broken.status == 422 and "The upload was interrupted. Try again." in broken.text
    assert "No images yet" in HtmlPage(user, "/templates/pictures").text
    assert upload_without_script(user, "large.png", PNG + b"\0" * (4 << 20)).title == "large.png"


def test_usage_of_a_picture(user: ScriptlessBrowser, api: Client) -> None:
    """The page links to templates, campaigns and the brand that use the picture, and disables deletion."""
    url = add(api)
    page = HtmlPage(user, newest_path(user))
    image = f'<img src="{url}" alt="Bread">'
    assert "Not used yet." in page.text
    template = api.post("/templates", {"name": "Monthly", "body": image}).expect(201)["id"]
    campaign = api.post("/campaigns", {"name": "Spring", "template_attributes": {"body": image}}).expect(201)["id"]
    api.put("/brand", {"logo": url, "company_name": "Bakery"}).expect(200)
    api.post("/messages", {"to": "ann@example.org", "subject": "Hi", "body": image}).expect(201)
    page = page.reload()
    used = page.all(".kv")[0]
    links = {text_of(link): link.attrib["href"] for link in select(used, "a")}
    expected = {"Monthly": f"/templates/{template}/edit", "Spring": f"/campaigns/{campaign}", "Bakery": "/brand"}
    assert expected.items() <= links.items()
    assert "1 transactional message" in text_of(used)
    [delete] = page.named("main button", "Delete")
    assert "disabled" in delete.attrib
    assert "cannot be deleted" in text_of(page.one("#kept"))


def test_a_used_picture_is_not_deleted(
    browser_page: Page, user: ScriptlessBrowser, server: Server, api: Client
) -> None:
    """Deleting a picture that is in use by then is rejected with the place; unused, it is deleted."""
    url = add(api, "cake.png")
    path = newest_path(user)
    page = HtmlPage(user, path)
    template = api.post("/templates", {"name": "Raced", "body": f'<img src="{url}">'}).expect(201)["id"]
    page = page.press("Delete image")
    assert page.has("[role=alert]", "cannot be deleted") and page.named("a", "Raced")
    assert api.request("GET", url.removeprefix(server.url)).status == 200
    api.delete(f"/templates/{template}").expect(200)
    browser_page.goto(path)
    browser_page.get_by_role("button", name="Delete").click()
    save_screenshot(browser_page, "pictures-ask")
    browser_page.get_by_role("button", name="Delete image").click()
    expect(browser_page.locator(".toast")).to_contain_text("“cake.png” deleted.")
    assert api.request("GET", url.removeprefix(server.url)).status == 404
    assert user.status("GET", path) == 404


def test_roles_on_the_pictures_pages(fresh_server: FreshServer) -> None:
    """A viewer has no form or delete button and gets a 403; an author uploads and deletes."""
    server = fresh_server()
    api = server.client()
    for role in ("viewer", "author"):
        server.cli("user", "add", "--email", f"{role}@example.org", "--role", role, stdin=f"{PASSWORD}\n")
    for role, may_write in (("viewer", False), ("author", True)):
        user = ScriptlessBrowser(api, f"{role}@example.org")
        page = HtmlPage(user, "/templates/pictures")
        assert len(page.all("input[type=file]")) == int(may_write)
        title = "Upload your logo" if may_write else "Your role cannot upload images."
        assert page.has(".empty", title)
        url = add(api)
        path = newest_path(user)
        page = HtmlPage(user, path)
        source = page.one("main img").attrib["src"]
        assert user.request("GET", source).headers["content-type"].startswith("image/")
        assert len(page.all("button", "Delete image")) == int(may_write)
        body, kind = multipart_form(PNG, "a.png")
        added = user.request("POST", "/templates/pictures", body, **{"Content-Type": kind})
        deleted = user.submit(f"{path}/delete")
        assert (added.status, deleted.status) == ((303, 303) if may_write else (403, 403))
        assert len(HtmlPage(ScriptlessBrowser(api), "/templates/pictures").all(".card.tile")) == 1
        assert api.request("GET", url.removeprefix(server.url)).status == (404 if may_write else 200)
        assert ScriptlessBrowser(api).submit(f"{path}/delete").status == (404 if may_write else 303)


def test_pictures_without_javascript(user: ScriptlessBrowser, api: Client) -> None:
    """Upload, errors, search and pagination work with plain forms and links."""
    assert "not a PNG" in text_of(upload_without_script(user, "x.png", b"no picture").one("#f-file-err"))
    assert upload_without_script(user, "Bare.png", PNG).title == "Bare.png"
    small = encode_image(photo(48, 30), "PNG")
    for number in range(25):
        add(api, f"{number}.png", small)
    page = HtmlPage(user, "/templates/pictures")
    assert len(page.all(".tile")) == 24
    assert page.follow("Next").has("#rows", "Bare.png")
    search = page.field("Search images")
    search.set("value", "bare")
    assert len(page.press(search).all(".tile")) == 1


@pytest.mark.parametrize(
    ("width", "dark"), [full_only(320, False), full_only(375, True), full_only(1280, False), full_only(1280, True)]
)
def test_pictures_pages_fit_a_phone(
    width: int, dark: bool, browser: Browser, user: ScriptlessBrowser, server: Server, api: Client
) -> None:  # fmt: skip
    """Pages with long and hostile file names do not scroll sideways, in light and dark."""
    problems = Problems()
    page = sign_in(new_page(browser, server.url, problems, width=width, dark=dark))
    for name in (LONG_NAME, MARKUP_NAME, "Summer in the garden.jpg"):
        add(api, name)
    upload_response = upload_image(api, encode_image(photo(1440, 500, seed=7), "JPEG"), MARKUP_NAME)
    assert upload_response.status == 201
    picture_path = newest_path(user)
    for path, name in (("/templates/pictures", "list"), (picture_path, "one")):
        page.goto(path)
        page.wait_for_load_state("networkidle")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        assert page.evaluate("document.querySelectorAll('[style], style, script:not([src]), main i').length") == 0
        expect(page.locator("h1")).to_have_count(1)
        save_screenshot(page, f"pictures-{name}-{width}{'-dark' if dark else ''}")
    expect(page.get_by_role("heading", level=1)).to_have_text(MARKUP_NAME)
    box = page.locator("main img").bounding_box()
    assert box is not None and abs(box["width"] / box["height"] - 1440 / 500) < 0.05
    page.context.close()
    assert not problems.found
