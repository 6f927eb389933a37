"""Pictures in the browser: added, shown with their address and their use, deleted only when nothing shows them."""

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, FilePayload, Page, expect

from tests.conftest import FreshServer
from tests.kit.browser import Problems, new_page, shoot, sign_in
from tests.kit.client import Client
from tests.kit.pictures import hostile, photo, saved
from tests.kit.server import PASSWORD, Server
from tests.kit.uploads import upload_picture

PNG = saved(photo(), "PNG")
# A name that would be an element if a page wrote it as it is, and one that has no place to break
SNEAKY, LONG = "<i onclick='x'>&{{ 7 * 7 }}.png", "w" * 250 + ".png"


@pytest.fixture
def alone(fresh_server: FreshServer, browser: Browser) -> Iterator[tuple[Server, Page]]:
    """A server without a picture, and its owner at a browser."""
    server, problems = fresh_server(), Problems()
    page = sign_in(new_page(browser, server.url, problems))
    yield server, page
    page.context.close()
    assert not problems.found


def choose(page: Page, name: str, content: bytes) -> None:
    """Upload a file by the form."""
    with tempfile.TemporaryDirectory() as place:  # by its path: as a payload, millions of bytes take seconds
        path = Path(place) / name
        path.write_bytes(content)
        page.get_by_label("Add a picture").set_input_files(path)
        with page.expect_response(lambda answer: answer.request.method == "POST"):
            page.get_by_role("button", name="Upload").click()


def add(api: Client, name: str = "bread.png") -> str:
    """Upload a picture over the API and return its address."""
    return str(upload_picture(api, PNG, name).expect(201)["url"])


def newest(page: Page) -> str:
    """Return the path of the page of the newest picture."""
    found = re.search(r'href="(/templates/pictures/\d+)"', page.request.get("/templates/pictures").text())
    assert found is not None
    return found[1]


def in_view(page: Page, picture: str) -> list[int]:
    """Wait for a picture and return its own size in pixels."""
    page.wait_for_function("one => { const i = document.querySelector(one); return i?.complete && i.naturalWidth }",
                           arg=picture)  # fmt: skip
    return list(page.eval_on_selector(picture, "i => [i.naturalWidth, i.naturalHeight]"))


def test_a_picture_is_added_and_its_address_is_given(alone: tuple[Server, Page]) -> None:
    """From nothing to a picture with an address that everybody may open; then it is in the list and is found."""
    server, page = alone
    page.goto("/templates")
    page.get_by_role("link", name="Pictures").click()
    expect(page.locator("main")).to_contain_text("No pictures yet")
    shoot(page, "pictures-empty")
    choose(page, "Bäckerei.png", PNG)
    expect(page.locator(".toast")).to_contain_text("Uploaded. Copy its address")
    expect(page.get_by_role("heading", level=1)).to_have_text("Bäckerei.png")
    expect(page.locator("main")).to_contain_text("640 × 400")
    assert in_view(page, "main img") == [640, 400]
    address = page.get_by_role("button", name="Copy address").get_attribute("data-copy") or ""
    assert re.fullmatch(rf"{server.url}/m/\w{{32}}", address)
    assert server.client().request("GET", address.removeprefix(server.url)).headers["content-type"] == "image/png"
    page.get_by_role("button", name="Copy address").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    add(server.client(), "second.png")
    page.get_by_role("link", name="Pictures").click()
    expect(page.locator(".tile .name")).to_have_text(["second.png", "Bäckerei.png"])
    assert in_view(page, ".tile img") == [480, 300]
    seen = page.request.get(page.locator(".tile img").last.get_attribute("src") or "")
    assert seen.headers["content-type"] == "image/webp" and "immutable" in seen.headers["cache-control"]
    assert len(seen.body()) * 5 < len(PNG) and page.request.get("/templates/pictures/1/900").status == 404
    page.get_by_label("Search pictures").fill("CKER")
    expect(page.locator(".tile .name")).to_have_text(["Bäckerei.png"])
    page.get_by_label("Search pictures").fill("cake")
    expect(page.locator("#rows")).to_contain_text("No picture matches “cake”")
    shoot(page, "pictures-no-match")
    page.get_by_role("link", name="Clear search").click()
    expect(page.locator(".tile")).to_have_count(2)


def test_a_file_that_cannot_be_used_says_why(alone: tuple[Server, Page]) -> None:
    """No file, no picture, an SVG, one over 5 MB, one far over: each in words at its field; nothing is kept."""
    _, page = alone
    page.goto("/templates/pictures")
    page.get_by_role("button", name="Upload").click()
    expect(page.locator("#f-file-err")).to_have_text("Choose a file with a picture in it.")
    expect(page.locator("#f-file")).to_be_focused()
    wrong = {
        "This file is not a PNG, JPEG, GIF or WebP picture.": b"Dear Anna",
        "This file is an SVG, which mail programs do not show: export it as a PNG.": hostile()["svg"],
        "This file is larger than 5 MB: make the picture smaller.": PNG + b"\0" * (6 << 20),
    }
    for words, content in wrong.items():
        choose(page, "logo.png", content)
        expect(page.locator("#f-file-err")).to_have_text(words)
    choose(page, "logo.png", PNG + b"\0" * (40 << 20))
    expect(page.locator("#f-file-err")).to_contain_text("larger than 5 MB")
    shoot(page, "pictures-refused")
    expect(page.locator("main")).to_contain_text("No pictures yet")
    choose(page, "large.png", PNG + b"\0" * (4 << 20))
    expect(page.get_by_role("heading", level=1)).to_have_text("large.png")


def test_what_is_no_form_or_breaks_off_keeps_nothing(alone: tuple[Server, Page]) -> None:
    """An upload without a form is asked for a file; one that ends in the middle is asked for again."""
    _, page = alone
    empty = page.request.post("/templates/pictures", form={"file": "x"}, headers={"Sec-Fetch-Site": "same-origin"})
    assert empty.status == 422 and "Choose a file" in empty.text()
    head = '--b\r\nContent-Disposition: form-data; name="file"; filename="a.png"\r\n\r\n'
    headers = {"Sec-Fetch-Site": "same-origin", "Content-Type": "multipart/form-data; boundary=b"}
    broken = page.request.post("/templates/pictures", data=head.encode() + PNG, headers=headers)
    assert broken.status == 422 and "The upload broke off: try again." in broken.text()
    page.goto("/templates/pictures")
    expect(page.locator("main")).to_contain_text("No pictures yet")


def test_where_a_picture_is_used_is_said(browser_page: Page, api: Client) -> None:
    """Templates, campaigns, the brand and single messages, with links to them; meanwhile it cannot be deleted."""
    url = add(api)
    path, image = newest(browser_page), f'<img src="{url}" alt="Bread">'
    browser_page.goto(path)
    expect(browser_page.locator("main")).to_contain_text("Nothing yet. Put its address into the logo")
    template = api.post("/templates", {"name": "Monthly", "body": image}).expect(201)["id"]
    campaign = api.post("/campaigns", {"name": "Spring", "template_attributes": {"body": image}}).expect(201)["id"]
    api.put("/brand", {"logo": url, "company_name": "Bakery"}).expect(200)
    api.post("/messages", {"to": "ann@example.org", "subject": "Hi", "body": image}).expect(201)
    browser_page.reload()
    used = browser_page.locator(".kv").first
    for name, href in (("Monthly", f"/templates/{template}/edit"), ("Spring", f"/campaigns/{campaign}"),
                       ("Bakery", "/brand")):  # fmt: skip
        expect(used.get_by_role("link", name=name)).to_have_attribute("href", href)
    expect(used).to_contain_text("1 single message")
    expect(browser_page.get_by_role("button", name="Delete")).to_be_disabled()
    expect(browser_page.locator("#kept")).to_contain_text("cannot be deleted")
    shoot(browser_page, "pictures-used")


def test_only_what_nothing_shows_is_deleted(browser_page: Page, server: Server, api: Client) -> None:
    """Who asks while somebody puts it into a template is refused and told where; once it is out, it goes."""
    url = add(api, "cake.png")
    path = newest(browser_page)
    browser_page.goto(path)
    browser_page.get_by_role("button", name="Delete").click()
    template = api.post("/templates", {"name": "Raced", "body": f'<img src="{url}">'}).expect(201)["id"]
    browser_page.get_by_role("button", name="Delete picture").click()
    expect(browser_page.get_by_role("alert")).to_contain_text("It is not deleted")
    expect(browser_page.get_by_role("link", name="Raced")).to_be_visible()
    shoot(browser_page, "pictures-kept")
    assert api.request("GET", url.removeprefix(server.url)).status == 200
    api.delete(f"/templates/{template}").expect(200)
    browser_page.goto(path)
    browser_page.get_by_role("button", name="Delete").click()
    shoot(browser_page, "pictures-ask")
    browser_page.get_by_role("button", name="Delete picture").click()
    expect(browser_page.locator(".toast")).to_contain_text("cake.png is deleted.")
    assert api.request("GET", url.removeprefix(server.url)).status == 404
    assert browser_page.request.get(path).status == 404


@pytest.mark.parametrize("role", ["viewer", "author"])
def test_viewers_look_and_authors_add(role: str, alone: tuple[Server, Page], browser: Browser) -> None:
    """A viewer is offered no form and no button to delete, and what they post anyway is refused; an author has both."""
    server, owner = alone
    server.cli("user", "add", "--email", f"{role}@example.org", "--role", role, stdin=f"{PASSWORD}\n")
    problems = Problems()
    problems.allow("status of 403")
    page = sign_in(new_page(browser, server.url, problems), f"{role}@example.org")
    page.goto("/templates/pictures")
    may = role == "author"
    expect(page.get_by_label("Add a picture")).to_have_count(int(may))
    expect(page.locator(".empty")).to_contain_text("Add the first one above" if may else "Those who write the emails")
    url = add(server.client())
    path = newest(owner)
    page.goto(path)
    assert in_view(page, "main img") == [640, 400]
    expect(page.get_by_role("button", name="Delete", exact=True)).to_have_count(int(may))
    headers = {"Sec-Fetch-Site": "same-origin"}
    file: FilePayload = {"name": "a.png", "mimeType": "image/png", "buffer": PNG}
    added = page.request.post("/templates/pictures", multipart={"file": file}, headers=headers, max_redirects=0)
    gone = page.request.post(f"{path}/delete", headers=headers, max_redirects=0)
    assert (added.status, gone.status) == ((303, 303) if may else (403, 403))
    assert owner.request.get("/templates/pictures").text().count('class="card tile"') == 1
    assert owner.request.get(url).status == (404 if may else 200)
    page.context.close()
    assert not problems.found


def test_it_works_without_javascript(browser: Browser, server: Server, api: Client) -> None:
    """Upload, refusal, search and the pages of the list are plain forms and links."""
    context = browser.new_context(base_url=server.url, java_script_enabled=False)
    context.set_default_timeout(30_000)
    bare = sign_in(context.new_page())
    bare.goto("/templates/pictures")
    choose(bare, "x.png", b"no picture")
    assert "not a PNG" in bare.locator("#f-file-err").inner_text()
    choose(bare, "Bare.png", PNG)
    assert bare.locator("h1").inner_text() == "Bare.png"
    for number in range(25):
        add(api, f"{number}.png")
    bare.goto("/templates/pictures")
    assert bare.locator(".tile").count() == 24
    bare.get_by_role("link", name="Next").click()
    assert "Bare.png" in bare.locator("#rows").inner_text()
    bare.get_by_label("Search pictures").fill("bare")
    bare.get_by_label("Search pictures").press("Enter")
    assert bare.locator(".tile").count() == 1
    context.close()


@pytest.mark.parametrize(("width", "dark"), [(320, False), (375, True), (1280, False), (1280, True)])
def test_it_fits_small_and_dark(width: int, dark: bool, browser: Browser, server: Server, api: Client) -> None:
    """No page scrolls sideways on a phone whatever a file is called; a name is text and nothing else."""
    problems = Problems()
    page = sign_in(new_page(browser, server.url, problems, width=width, dark=dark))
    for name in (LONG, SNEAKY, "Summer in the garden.jpg"):
        add(api, name)
    wide = upload_picture(api, saved(photo(1440, 500, seed=7), "JPEG"), SNEAKY)
    assert wide.status == 201
    one = newest(page)
    for path, name in (("/templates/pictures", "list"), (one, "one")):
        page.goto(path)
        page.wait_for_load_state("networkidle")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        assert page.evaluate("document.querySelectorAll('[style], style, script:not([src]), main i').length") == 0
        assert page.locator("h1").count() == 1
        shoot(page, f"pictures-{name}-{width}{'-dark' if dark else ''}")
    expect(page.get_by_role("heading", level=1)).to_have_text(SNEAKY)
    box = page.locator("main img").bounding_box()
    assert box is not None and abs(box["width"] / box["height"] - 1440 / 500) < 0.05
    page.context.close()
    assert not problems.found
