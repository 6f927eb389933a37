"""The pictures pages: uploading, URLs, usage and deletion."""

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, FilePayload, Page, expect

from tests.conftest import FreshServer
from tests.kit.browser import Problems, new_page, new_scriptless_context, save_screenshot, sign_in
from tests.kit.client import Client
from tests.kit.pictures import encode_image, hostile_file, photo
from tests.kit.sampling import full_only
from tests.kit.server import PASSWORD, Server
from tests.kit.uploads import upload_image

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


def add(api: Client, name: str = "bread.png") -> str:
    """Upload a picture over the API and return its URL."""
    return str(upload_image(api, PNG, name).expect(201)["url"])


def newest_path(page: Page) -> str:
    """Return the page path of the newest picture."""
    match = re.search(r'href="(/templates/pictures/\d+)"', page.request.get("/templates/pictures").text())
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


def test_invalid_pictures_are_rejected(empty_server: tuple[Server, Page]) -> None:
    """Missing, invalid, SVG and too large files are errors at the field; nothing is stored."""
    _, page = empty_server
    page.goto("/templates/pictures")
    page.get_by_role("button", name="Upload image").click()
    expect(page.locator("#f-file-err")).to_have_text("Select an image file.")
    expect(page.locator("#f-file")).to_be_focused()
    invalid_files = {
        "This file cannot be used: it is not a PNG, JPEG, GIF or WebP image.": b"Dear Anna",
        "This file cannot be used: it is an SVG, which email apps do not show: export it as a PNG.": hostile_file(
            "svg"
        ),
        "This file is larger than 5 MB. Upload a smaller image.": PNG + b"\0" * (6 << 20),
    }
    for message, content in invalid_files.items():
        upload_by_form(page, "logo.png", content)
        expect(page.locator("#f-file-err")).to_have_text(message)
    upload_by_form(page, "logo.png", PNG + b"\0" * (40 << 20))
    expect(page.locator("#f-file-err")).to_contain_text("larger than 5 MB")
    save_screenshot(page, "pictures-refused")
    expect(page.locator("main")).to_contain_text("No images yet")
    upload_by_form(page, "large.png", PNG + b"\0" * (4 << 20))
    expect(page.get_by_role("heading", level=1)).to_have_text("large.png")


def test_incomplete_uploads_store_nothing(empty_server: tuple[Server, Page]) -> None:
    """An upload without a file or with a truncated body is rejected."""
    _, page = empty_server
    empty = page.request.post("/templates/pictures", form={"file": "x"}, headers={"Sec-Fetch-Site": "same-origin"})
    assert empty.status == 422 and "Select an image file" in empty.text()
    head = '--b\r\nContent-Disposition: form-data; name="file"; filename="a.png"\r\n\r\n'
    headers = {"Sec-Fetch-Site": "same-origin", "Content-Type": "multipart/form-data; boundary=b"}
    broken = page.request.post("/templates/pictures", data=head.encode() + PNG, headers=headers)
    assert broken.status == 422 and "The upload was interrupted. Try again." in broken.text()
    page.goto("/templates/pictures")
    expect(page.locator("main")).to_contain_text("No images yet")


def test_usage_of_a_picture(browser_page: Page, api: Client) -> None:
    """The page links to templates, campaigns and the brand that use the picture, and disables deletion."""
    url = add(api)
    path, image = newest_path(browser_page), f'<img src="{url}" alt="Bread">'
    browser_page.goto(path)
    expect(browser_page.locator("main")).to_contain_text("Not used yet.")
    template = api.post("/templates", {"name": "Monthly", "body": image}).expect(201)["id"]
    campaign = api.post("/campaigns", {"name": "Spring", "template_attributes": {"body": image}}).expect(201)["id"]
    api.put("/brand", {"logo": url, "company_name": "Bakery"}).expect(200)
    api.post("/messages", {"to": "ann@example.org", "subject": "Hi", "body": image}).expect(201)
    browser_page.reload()
    used = browser_page.locator(".kv").first
    for name, href in (("Monthly", f"/templates/{template}/edit"), ("Spring", f"/campaigns/{campaign}"),
                       ("Bakery", "/brand")):  # fmt: skip
        expect(used.get_by_role("link", name=name)).to_have_attribute("href", href)
    expect(used).to_contain_text("1 transactional message")
    expect(browser_page.get_by_role("button", name="Delete")).to_be_disabled()
    expect(browser_page.locator("#kept")).to_contain_text("cannot be deleted")
    save_screenshot(browser_page, "pictures-used")


def test_a_used_picture_is_not_deleted(browser_page: Page, server: Server, api: Client) -> None:
    """Deleting a picture that is in use by then is rejected with the place; unused, it is deleted."""
    url = add(api, "cake.png")
    path = newest_path(browser_page)
    browser_page.goto(path)
    browser_page.get_by_role("button", name="Delete").click()
    template = api.post("/templates", {"name": "Raced", "body": f'<img src="{url}">'}).expect(201)["id"]
    browser_page.get_by_role("button", name="Delete image").click()
    expect(browser_page.get_by_role("alert")).to_contain_text("cannot be deleted")
    expect(browser_page.get_by_role("link", name="Raced")).to_be_visible()
    save_screenshot(browser_page, "pictures-kept")
    assert api.request("GET", url.removeprefix(server.url)).status == 200
    api.delete(f"/templates/{template}").expect(200)
    browser_page.goto(path)
    browser_page.get_by_role("button", name="Delete").click()
    save_screenshot(browser_page, "pictures-ask")
    browser_page.get_by_role("button", name="Delete image").click()
    expect(browser_page.locator(".toast")).to_contain_text("cake.png deleted.")
    assert api.request("GET", url.removeprefix(server.url)).status == 404
    assert browser_page.request.get(path).status == 404


@pytest.mark.parametrize("role", ["viewer", "author"])
def test_roles_on_the_pictures_pages(role: str, empty_server: tuple[Server, Page], browser: Browser) -> None:
    """A viewer has no form or delete button and gets a 403; an author uploads and deletes."""
    server, owner = empty_server
    server.cli("user", "add", "--email", f"{role}@example.org", "--role", role, stdin=f"{PASSWORD}\n")
    problems = Problems()
    problems.allow("status of 403")
    page = sign_in(new_page(browser, server.url, problems), f"{role}@example.org")
    page.goto("/templates/pictures")
    may_write = role == "author"
    expect(page.get_by_label("Image file")).to_have_count(int(may_write))
    expect(page.locator(".empty")).to_contain_text(
        "Upload your logo" if may_write else "Your role cannot upload images."
    )
    url = add(server.client())
    path = newest_path(owner)
    page.goto(path)
    assert natural_size(page, "main img") == [640, 400]
    expect(page.get_by_role("button", name="Delete", exact=True)).to_have_count(int(may_write))
    headers = {"Sec-Fetch-Site": "same-origin"}
    file: FilePayload = {"name": "a.png", "mimeType": "image/png", "buffer": PNG}
    added = page.request.post("/templates/pictures", multipart={"file": file}, headers=headers, max_redirects=0)
    deleted = page.request.post(f"{path}/delete", headers=headers, max_redirects=0)
    assert (added.status, deleted.status) == ((303, 303) if may_write else (403, 403))
    assert owner.request.get("/templates/pictures").text().count('class="card tile"') == 1
    assert owner.request.get(url).status == (404 if may_write else 200)
    page.context.close()
    assert not problems.found


def test_pictures_without_javascript(browser: Browser, server: Server, api: Client) -> None:
    """Upload, errors, search and pagination work with plain forms and links."""
    context = new_scriptless_context(browser, server.url)
    page = sign_in(context.new_page())
    page.goto("/templates/pictures")
    upload_by_form(page, "x.png", b"no picture")
    expect(page.locator("#f-file-err")).to_contain_text("not a PNG")
    upload_by_form(page, "Bare.png", PNG)
    expect(page.locator("h1")).to_have_text("Bare.png")
    for number in range(25):
        add(api, f"{number}.png")
    page.goto("/templates/pictures")
    expect(page.locator(".tile")).to_have_count(24)
    page.get_by_role("link", name="Next").click()
    expect(page.locator("#rows")).to_contain_text("Bare.png")
    page.get_by_label("Search images").fill("bare")
    page.get_by_label("Search images").press("Enter")
    expect(page.locator(".tile")).to_have_count(1)
    context.close()


@pytest.mark.parametrize(
    ("width", "dark"), [(320, False), full_only(375, True), full_only(1280, False), full_only(1280, True)]
)
def test_pictures_pages_fit_a_phone(width: int, dark: bool, browser: Browser, server: Server, api: Client) -> None:
    """Pages with long and hostile file names do not scroll sideways, in light and dark."""
    problems = Problems()
    page = sign_in(new_page(browser, server.url, problems, width=width, dark=dark))
    for name in (LONG_NAME, MARKUP_NAME, "Summer in the garden.jpg"):
        add(api, name)
    upload_response = upload_image(api, encode_image(photo(1440, 500, seed=7), "JPEG"), MARKUP_NAME)
    assert upload_response.status == 201
    picture_path = newest_path(page)
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
