"""Cross-site scripting: texts of users, servers and files stay text on every page (T03)."""

import re
from collections.abc import Iterator
from urllib.parse import parse_qsl, urlsplit

import pytest
from playwright.sync_api import Browser, Dialog, Page

from tests.api.test_threats_pages import Visitor
from tests.kit.browser import Problems, new_page, sign_in
from tests.kit.client import Response
from tests.kit.payloads import ACTIVE_HTML, ALL_PAYLOADS, MARK, ActiveContentParser, hostile_design
from tests.kit.pictures import encode_image, photo
from tests.kit.sampling import is_full
from tests.kit.server import EMAIL, Server
from tests.kit.smtp import SmtpServer
from tests.kit.uploads import upload, upload_image, wait_for_import


class SeededServer(Server):
    """A server with the paths of the links of a sent email."""

    leave, view = "", ""


@pytest.fixture(scope="module")
def seeded() -> Iterator[SeededServer]:
    """A server with a payload in every text, whatever its origin."""
    with SmtpServer() as relay, SeededServer(relay=relay.port).set_up() as server:
        relay.rules.reject("rcpt", "refused@*", code=550, text=f"5.1.1 {ALL_PAYLOADS}")
        server.set_postal_address()
        _fill_with_payloads(server)
        email = relay.to("reader@example.org")[0]
        server.leave = _path("u", email.header("List-Unsubscribe") or "")
        server.view = _path("v", email.html() or "")
        _unsubscribe(server)
        yield server
        server.stop()


def _fill_with_payloads(server: Server) -> None:
    """Put payloads into every text field, and into data that is only passed on."""
    api = server.client()
    texts = ("style_notes", "tone", "company_description", "physical_address", "company_name", "industry",
             "font_heading", "font_body")  # fmt: skip
    links = [{"url": f"https://x.example/{MARK}", "icon": ALL_PAYLOADS, "title": ALL_PAYLOADS}]
    brand = {**dict.fromkeys(texts, ALL_PAYLOADS), "links": links, "example_copy": [ALL_PAYLOADS]}
    header = {"wordmark_text": ALL_PAYLOADS, "links": [{"text": ALL_PAYLOADS, "href": "https://x.example"}]}
    footer = {"text": ACTIVE_HTML, "unsubscribe_text": ALL_PAYLOADS}
    defaults = {"default_header": header, "default_footer": footer, "default_theme": {"font_body": ALL_PAYLOADS}}
    api.put("/brand", brand | defaults).expect(200)
    api.patch("/account", {"name": ALL_PAYLOADS, "email_from_name": ALL_PAYLOADS}).expect(200)
    list_id = api.post("/lists", {"name": ALL_PAYLOADS}).expect(201)["id"]
    contact_fields = {"first_name": ALL_PAYLOADS, "last_name": ALL_PAYLOADS, "source": ALL_PAYLOADS,
              "list_ids": [list_id],
              "data": {ALL_PAYLOADS[:60]: ALL_PAYLOADS, "deep": {"er": [ALL_PAYLOADS]}}}  # fmt: skip
    for address in ("reader@example.org", "refused@example.org"):
        contact_id = api.post("/contacts", {"email": address, **contact_fields}).expect(201)["id"]
    api.post(
        "/events", {"event": f"shown_{MARK}", "contact_id": contact_id, "data": {ALL_PAYLOADS[:60]: ALL_PAYLOADS}}
    ).expect(201)
    filters = [{"name": "contact_first_name", "predicate": "eq", "value": ALL_PAYLOADS}]
    api.post("/segments", {"name": ALL_PAYLOADS, "filters": filters}).expect(201)
    api.post("/suppressions", {"address": "gone@example.org", "note": ALL_PAYLOADS}).expect(201)
    quoted = ALL_PAYLOADS.replace('"', '""')
    file = f'email,first_name,{MARK}\n"new@example.org","{quoted}",x\n'
    wait_for_import(api, upload(api, file, f"{MARK}<img src=x onerror=alert(1)>.csv"))
    upload_image(api, encode_image(photo(), "PNG"), f"{MARK}<svg onload=alert(1)>.png").expect(201)
    content = {"subject": ALL_PAYLOADS, "preheader": ALL_PAYLOADS, "from_name": ALL_PAYLOADS}
    api.post("/templates", {"name": ALL_PAYLOADS, **content, "body": ACTIVE_HTML}).expect(201)
    api.post("/templates", {"name": ALL_PAYLOADS, **content, "design": hostile_design()}).expect(201)
    campaign = {"name": ALL_PAYLOADS, "template_attributes": {**content, "body": ACTIVE_HTML}}
    api.post("/campaigns", campaign).expect(201)
    campaign_id = api.post("/campaigns", {**campaign, "trigger_attributes": {"contact_list_id": list_id}}).expect(201)[
        "id"
    ]
    api.post(f"/campaigns/{campaign_id}/send").expect(200)
    api.wait(f"/campaigns/{campaign_id}", lambda row: row["status"] == "completed")
    message = {
        "to": "reader@example.org",
        **content,
        "body": ACTIVE_HTML,
        "tags": {"x": ALL_PAYLOADS},
        "data": {"x": ALL_PAYLOADS},
    }
    message_id = server.client(server.new_key("capture", "--test")).post("/messages", message).expect(201)["id"]
    api.wait(f"/messages/{message_id}", lambda row: row["status"] == "sent")


def _path(kind: str, text: str) -> str:
    """Return the path of a link in an email."""
    match = re.search(rf"/{kind}/[\w\-]+", text)
    assert match is not None, text
    return match[0]


def _unsubscribe(server: SeededServer) -> None:
    """Unsubscribe with payloads in the request headers."""
    headers = {"User-Agent": ALL_PAYLOADS, "Referer": ALL_PAYLOADS, "Content-Type": "application/x-www-form-urlencoded"}
    response = server.client().request("POST", server.leave, b"List-Unsubscribe=One-Click", headers)
    assert response.status == 200 and ActiveContentParser(response).active_content == []


@pytest.fixture(scope="module")
def crawled(seeded: SeededServer) -> tuple[dict[str, Response], dict[str, ActiveContentParser]]:
    """Responses by path: a page of each kind that links lead to (with `--full` two), and their frames; parsed ones."""
    return _crawl(seeded)


@pytest.fixture(scope="module")
def pages_by_path(crawled: tuple[dict[str, Response], dict[str, ActiveContentParser]]) -> dict[str, Response]:
    """The responses by path."""
    return crawled[0]


@pytest.fixture(scope="module")
def parsed_pages(crawled: tuple[dict[str, Response], dict[str, ActiveContentParser]]) -> dict[str, ActiveContentParser]:
    """The parsed pages by path."""
    return crawled[1]


def _page_kind(path: str) -> str:
    """Return the kind of a page: its path without ids, and its parameter names."""
    place, _, query = path.partition("?")
    return re.sub(r"\d+", "1", place) + "?" + "&".join(sorted(name for name, _ in parse_qsl(query)))


def _crawl(server: Server) -> tuple[dict[str, Response], dict[str, ActiveContentParser]]:
    visitor = Visitor(server, EMAIL)
    starts = ["/", "/inbox/1", *(f"/inbox/1?view={view}" for view in ("html", "text", "source", "headers")),
              "/campaigns/1", "/campaigns/2", "/campaigns/1/send", "/templates/1/edit", "/templates/2/edit",
              "/contacts/1", "/contacts/2", "/contacts/1/edit", "/lists/1/add", f"/contacts?search={MARK}",
              f"/activity?event=shown_{MARK}"]  # fmt: skip
    waiting, kinds, required = list(starts), dict[str, int](), set(starts)
    responses, parsed = dict[str, Response](), dict[str, ActiveContentParser]()
    while waiting:
        path = waiting.pop(0)
        kind = _page_kind(path)
        # The documentation shows nothing of users but the words of a search
        is_known = kinds.get(kind, 0) >= (2 if is_full else 1) and path not in required
        if path in responses or path.startswith("/docs/") or is_known:
            continue
        kinds[kind] = kinds.get(kind, 0) + 1
        responses[path] = visitor.send("GET", path)
        if _is_html(responses[path]):
            parsed[path] = reader = ActiveContentParser(responses[path])
            # A page that is linked with several fragments is requested once
            waiting += sorted({link.partition("#")[0] for link in reader.links} - {""})
            frames = [str(frame["src"]) for frame in reader.frames]
            required.update(frames)
            waiting += frames
    return responses, parsed


def test_payloads_stay_text(
    pages_by_path: dict[str, Response], parsed_pages: dict[str, ActiveContentParser]
) -> None:  # fmt: skip
    """No page or part contains elements, attributes or URLs of a payload."""
    pages = {
        path: response for path, response in pages_by_path.items() if _is_html(response) and not _is_mail(response)
    }
    shown = {path for path in pages if MARK in parsed_pages[path].text}

    for path, response in pages.items():
        assert response.status in (200, 303, 404), path
        assert parsed_pages[path].active_content == [], path
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy, path
        assert response.headers["x-content-type-options"] == "nosniff", path
    others = {
        path: response for path, response in pages_by_path.items() if response.status == 200 and not _is_html(response)
    }
    for path, response in others.items():
        content_type = response.headers["content-type"].partition(";")[0]
        is_file = response.headers.get("content-disposition", "").startswith("attachment; ")
        assert content_type in ("application/json", "application/yaml", "text/plain") or (
            content_type in ("text/csv", "application/zip") and is_file
        ), path
        assert response.headers["x-content-type-options"] == "nosniff", path
    for path in ("/", "/brand", "/contacts", "/contacts/1", "/lists", "/lists/1", "/templates", "/templates/1/edit",
                 "/campaigns", "/campaigns/1", "/campaigns/2", "/activity", "/settings", "/inbox/1",
                 "/contacts/suppressions", "/contacts/suppressions/1"):  # fmt: skip
        assert path in shown, path
    report_text = "".join(parsed_pages[path].text for path in pages if path.startswith("/campaigns/2"))
    refusal = f"5.1.1 {ALL_PAYLOADS}"[:60]
    assert refusal in report_text or refusal in parsed_pages["/contacts/2"].text


def _is_html(response: Response) -> bool:
    return "text/html" in (response.headers.get("content-type") or "")


def _is_mail(response: Response) -> bool:
    return "sandbox" in response.headers.get("content-security-policy", "")


def test_emails_are_shown_in_a_sandbox(
    seeded: SeededServer, pages_by_path: dict[str, Response], parsed_pages: dict[str, ActiveContentParser]
) -> None:
    """Each frame is sandboxed by attribute and by policy, and the email in it is sanitised."""
    frames = [frame for page in parsed_pages.values() for frame in page.frames]
    mails = {path: response for path, response in pages_by_path.items() if _is_mail(response)}

    assert len(mails) >= 5 and {urlsplit(str(frame["src"])).path for frame in frames} <= {
        urlsplit(path).path for path in mails
    }
    for frame in frames:
        assert not {"allow-scripts", "allow-same-origin"} & set((frame.get("sandbox") or "").split()) or (
            frame["sandbox"] == "allow-scripts" and str(frame["src"]).partition("?")[0].endswith("/canvas")
        ), frame
        assert "srcdoc" not in frame and "sandbox" in frame
    canvases = 0
    for path, response in mails.items():
        policy = dict(
            source.strip().partition(" ")[::2] for source in response.headers["content-security-policy"].split(";")
        )
        if urlsplit(path).path.endswith("/canvas"):
            # The only frame with scripts: five of ours, by URL, in an opaque origin
            canvases += 1
            our_scripts = {urlsplit(source).path.rpartition("/")[2] for source in policy["script-src"].split()}
            assert (policy["sandbox"], our_scripts) == (
                "allow-scripts",
                {"canvas.js", "pointer.js", "drag.js", "swap.js", "caret.js"},
            ), path
            assert all(source.partition("//")[2].startswith(f"127.0.0.1:{seeded.port}/static/")
                       for source in policy["script-src"].split()), path  # fmt: skip
            continue
        assert not {"allow-scripts", "allow-same-origin", "allow-top-navigation"} & set(policy["sandbox"].split()), path
        if path.startswith("/forms/preview/"):
            # The preview of a form is our own page, whose styles are named by a nonce
            assert policy["default-src"] == "'none'" and "unsafe" not in policy["style-src"], path
            continue
        assert (policy["default-src"], policy["style-src"]) == ("'none'", "'unsafe-inline'"), path
        assert policy["img-src"] == f"https: data: {seeded.url}/m/" and policy["frame-ancestors"] == "'self'", path
        assert response.headers["x-content-type-options"] == "nosniff" and "set-cookie" not in response.headers, path
        assert [act for act in parsed_pages[path].active_content if act != "<base>"] == [], path
        assert response.text.count("<base") == response.text.count('<base target="_blank">'), path
    assert canvases


def test_payloads_on_public_pages(seeded: SeededServer) -> None:
    """The unsubscribe page and the browser view show payloads as text."""
    page, mail = (seeded.client().request("GET", path) for path in (seeded.leave, seeded.view))

    assert (page.status, mail.status) == (200, 200)
    assert (
        ActiveContentParser(page).active_content == [] and MARK in ActiveContentParser(page).text and not _is_mail(page)
    )
    assert ActiveContentParser(mail).active_content == [] and MARK in ActiveContentParser(mail).text and _is_mail(mail)


def test_script_urls_are_rejected(seeded: SeededServer) -> None:
    """URL fields reject script URLs with a 422."""
    api = seeded.client()
    for url in ("javascript:alert(1)", "JaVaScRiPt:alert(1)", "data:text/html,<script>alert(1)</script>", "vbscript:x"):
        assert api.put("/brand", {"links": [{"url": url}]}).status == 422, url
        assert api.put("/brand", {"logo": url}).status == 422, url
        section = {"type": "button", "props": {"text": "x", "href": url}}
        assert api.post("/templates", {"design": {"sections": [section], "theme": {}}}).status == 422, url


def test_payloads_in_a_browser(
    seeded: SeededServer, pages_by_path: dict[str, Response], browser: Browser, full: bool
) -> None:
    """In Chromium no dialog opens, no payload's URL is loaded, and no payload is an element.

    One page of each kind is opened: without `--full`, pages that differ only in their query are of one kind, and only
    every fifth kind is opened.
    """
    problems = Problems()
    problems.allow("Blocked script execution in|x.example|status of 404|Failed to load resource")
    problems.allow('directive: "img-src|policy: img-src blocked')
    page = sign_in(new_page(browser, seeded.url, problems))
    dialogs: list[str] = []
    response_paths: list[str] = []

    def record_dialog(dialog: Dialog) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", record_dialog)
    # Blocked requests are announced too, but get no response
    page.on("response", lambda response: response_paths.append(urlsplit(response.url).path))
    shown = {
        _page_kind(path) if full else _page_kind(path).partition("?")[0]: path
        for path, response in pages_by_path.items()
        if response.status == 200 and _is_html(response)
    }
    for path in list(shown.values())[:: 1 if full else 5]:
        page.goto(path, timeout=60_000)
        page.wait_for_timeout(20)
        assert _payload_elements(page) == 0, path
    page.context.close()
    assert dialogs == [] and response_paths and not [path for path in response_paths if path.endswith("/x")]
    assert problems.found == []


def _payload_elements(page: Page) -> int:
    """Return the number of payload elements in a page and its frames."""
    alive = "svg[onload], [onerror], [onfocus], [hx-get='/x'], script:not([src])"
    return sum(int(frame.locator(alive).count()) for frame in page.frames)


def test_uploaded_pictures_in_a_preview(seeded: SeededServer, browser: Browser) -> None:
    """A previewed email shows uploaded pictures, though it may load nothing else from the service."""
    url = upload_image(seeded.client(), encode_image(photo(), "PNG")).expect(201)["url"]
    body = f'<p>x</p><img src="{url}" alt="ours">'
    template_id = seeded.client().post("/templates", {"name": "Picture", "body": body}).expect(201)["id"]
    page = sign_in(new_page(browser, seeded.url, Problems()))
    page.goto(f"/templates/{template_id}/preview")
    page.wait_for_load_state("load")
    box = page.locator("img[alt=ours]").bounding_box()
    page.context.close()
    assert box is not None and box["width"] > 100
