"""T03: what people, servers and files say is shown as words on every page, and never becomes part of one."""

import re
from collections.abc import Iterator
from urllib.parse import parse_qsl, urlsplit

import pytest
from playwright.sync_api import Browser, Dialog, Page

from tests.api.test_threats_pages import Visitor
from tests.kit.browser import Problems, new_page, sign_in
from tests.kit.client import Response
from tests.kit.payloads import ALL, LIVELY, MARK, Reader, hostile_design
from tests.kit.pictures import photo, saved
from tests.kit.server import EMAIL, Server
from tests.kit.smtp import SmtpServer
from tests.kit.uploads import done, upload, upload_picture


class Seeded(Server):
    """A server, and where the links of a mail that it sent lead."""

    leave, view = "", ""


@pytest.fixture(scope="module")
def seeded() -> Iterator[Seeded]:
    """A server whose every text, from whoever it came, is a payload."""
    with SmtpServer() as relay, Seeded(relay=relay.port).set_up() as server:
        relay.rules.refuse("rcpt", "refused@*", code=550, text=f"5.1.1 {ALL}")
        server.give_address()
        _write(server)
        letter = relay.to("reader@example.org")[0]
        server.leave = _path("u", letter.header("List-Unsubscribe") or "")
        server.view = _path("v", letter.html() or "")
        _leave(server)
        yield server
        server.stop()


def _write(server: Server) -> None:
    """Put payloads into every text field, and into what is only ever passed on."""
    api = server.client()
    texts = ("style_notes", "tone", "company_description", "physical_address", "company_name", "industry",
             "font_heading", "font_body")  # fmt: skip
    links = [{"url": f"https://x.example/{MARK}", "icon": ALL, "title": ALL}]
    brand = {**dict.fromkeys(texts, ALL), "links": links, "example_copy": [ALL]}
    header = {"wordmark_text": ALL, "links": [{"text": ALL, "href": "https://x.example"}]}
    footer = {"text": LIVELY, "unsubscribe_text": ALL}
    defaults = {"default_header": header, "default_footer": footer, "default_theme": {"font_body": ALL}}
    api.put("/brand", brand | defaults).expect(200)
    api.patch("/account", {"name": ALL, "email_from_name": ALL}).expect(200)
    group = api.post("/lists", {"name": ALL}).expect(201)["id"]
    person = {"first_name": ALL, "last_name": ALL, "source": ALL, "list_ids": [group],
              "data": {ALL[:60]: ALL, "deep": {"er": [ALL]}}}  # fmt: skip
    for address in ("reader@example.org", "refused@example.org"):
        who = api.post("/contacts", {"email": address, **person}).expect(201)["id"]
    api.post("/events", {"event": f"shown_{MARK}", "contact_id": who, "data": {ALL[:60]: ALL}}).expect(201)
    filters = [{"name": "contact_first_name", "predicate": "eq", "value": ALL}]
    api.post("/segments", {"name": ALL, "filters": filters}).expect(201)
    api.post("/suppressions", {"address": "gone@example.org", "note": ALL}).expect(201)
    done(api, upload(api, f'email,first_name,{MARK}\n"new@example.org","{ALL.replace(chr(34), chr(34) * 2)}",x\n',
                     f"{MARK}<img src=x onerror=alert(1)>.csv"))  # fmt: skip
    upload_picture(api, saved(photo(), "PNG"), f"{MARK}<svg onload=alert(1)>.png").expect(201)
    said = {"subject": ALL, "preheader": ALL, "from_name": ALL}
    api.post("/templates", {"name": ALL, **said, "body": LIVELY}).expect(201)
    api.post("/templates", {"name": ALL, **said, "design": hostile_design()}).expect(201)
    campaign = {"name": ALL, "template_attributes": {**said, "body": LIVELY}}
    api.post("/campaigns", campaign).expect(201)
    sent = api.post("/campaigns", {**campaign, "trigger_attributes": {"contact_list_id": group}}).expect(201)["id"]
    api.post(f"/campaigns/{sent}/send").expect(200)
    api.wait(f"/campaigns/{sent}", lambda row: row["status"] == "completed")
    letter = {"to": "reader@example.org", **said, "body": LIVELY, "tags": {"x": ALL}, "data": {"x": ALL}}
    captured = server.client(server.new_key("capture", "--test")).post("/messages", letter).expect(201)["id"]
    api.wait(f"/messages/{captured}", lambda row: row["status"] == "sent")


def _path(kind: str, text: str) -> str:
    """Return the path of a link of a mail."""
    found = re.search(rf"/{kind}/[\w\-]+", text)
    assert found is not None, text
    return found[0]


def _leave(server: Seeded) -> None:
    """Unsubscribe as a reader does whose program calls itself a payload."""
    headers = {"User-Agent": ALL, "Referer": ALL, "Content-Type": "application/x-www-form-urlencoded"}
    left = server.client().request("POST", server.leave, b"List-Unsubscribe=One-Click", headers)
    assert left.status == 200 and Reader(left).acts == []


@pytest.fixture(scope="module")
def seen(seeded: Seeded) -> dict[str, Response]:
    """Every page that links lead to, two of a kind, and the frames in them."""
    return _crawl(seeded)


def _kind(path: str) -> str:
    """Return what a page is, whatever it is about."""
    place, _, query = path.partition("?")
    return re.sub(r"\d+", "1", place) + "?" + "&".join(sorted(name for name, _ in parse_qsl(query)))


def _crawl(server: Server) -> dict[str, Response]:
    visitor = Visitor(server, EMAIL)
    starts = ["/", "/inbox/1", *(f"/inbox/1?view={view}" for view in ("html", "text", "source", "headers")),
              "/campaigns/1", "/campaigns/2", "/campaigns/1/send", "/templates/1/edit", "/templates/2/edit",
              "/contacts/1", "/contacts/2", "/contacts/1/edit", "/lists/1/add", f"/contacts?search={MARK}",
              f"/activity?event=shown_{MARK}"]  # fmt: skip
    waiting, kinds = list(starts), dict[str, int]()
    seen: dict[str, Response] = {}
    while waiting:
        path = waiting.pop(0)
        kind = _kind(path)
        if path in seen or (kinds.get(kind, 0) >= 2 and path not in starts):
            continue
        kinds[kind] = kinds.get(kind, 0) + 1
        seen[path] = visitor.send("GET", path)
        if _is_html(seen[path]):
            found = Reader(seen[path])
            waiting += sorted(found.links) + [str(frame["src"]) for frame in found.frames]
    return seen


def test_no_payload_becomes_part_of_a_page(seen: dict[str, Response]) -> None:
    """Every page and part shows payloads as words: no element, no attribute, no address of theirs."""
    pages = {path: answer for path, answer in seen.items() if _is_html(answer) and not _is_mail(answer)}
    shown = {path for path, answer in pages.items() if MARK in Reader(answer).words}

    for path, answer in pages.items():
        assert answer.status in (200, 303, 404), path
        assert Reader(answer).acts == [], path
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy, path
        assert answer.headers["x-content-type-options"] == "nosniff", path
    others = {path: answer for path, answer in seen.items() if answer.status == 200 and not _is_html(answer)}
    for path, answer in others.items():
        kind = answer.headers["content-type"].partition(";")[0]
        is_file = answer.headers.get("content-disposition", "").startswith("attachment; ")
        assert kind in ("application/json", "application/yaml", "text/plain") or (kind == "text/csv" and is_file), path
        assert answer.headers["x-content-type-options"] == "nosniff", path
    for path in ("/", "/brand", "/contacts", "/contacts/1", "/lists", "/lists/1", "/templates", "/templates/1/edit",
                 "/campaigns", "/campaigns/1", "/campaigns/2", "/activity", "/settings", "/inbox/1",
                 "/contacts/suppressions", "/contacts/suppressions/1"):  # fmt: skip
        assert path in shown, path
    people = "".join(Reader(answer).words for path, answer in pages.items() if path.startswith("/campaigns/2"))
    assert f"5.1.1 {ALL}"[:60] in people or f"5.1.1 {ALL}"[:60] in Reader(pages["/contacts/2"]).words


def _is_html(answer: Response) -> bool:
    return "text/html" in (answer.headers.get("content-type") or "")


def _is_mail(answer: Response) -> bool:
    return "sandbox" in answer.headers.get("content-security-policy", "")


def test_a_mail_is_shown_where_nothing_runs(seeded: Seeded, seen: dict[str, Response]) -> None:
    """Every frame has a sandbox of its own, from within and from without; what we made is clean besides."""
    frames = [frame for answer in seen.values() if _is_html(answer)
              for frame in Reader(answer).frames]  # fmt: skip
    # The reference of the interface is in a sandbox too, and is no mail: `test_docs` looks at it
    mails = {path: answer for path, answer in seen.items() if _is_mail(answer) and not path.startswith("/docs/")}

    assert len(mails) >= 5 and {urlsplit(str(frame["src"])).path for frame in frames} <= {
        urlsplit(path).path for path in mails
    }
    for frame in frames:
        assert not {"allow-scripts", "allow-same-origin"} & set((frame.get("sandbox") or "").split()) or (
            frame["sandbox"] == "allow-scripts" and str(frame["src"]).partition("?")[0].endswith("/canvas")
        ), frame
        assert "srcdoc" not in frame and "sandbox" in frame
    canvases = 0
    for path, answer in mails.items():
        policy = dict(one.strip().partition(" ")[::2] for one in answer.headers["content-security-policy"].split(";"))
        if urlsplit(path).path.endswith("/canvas"):
            # The one frame in which scripts run: five of ours, by their addresses, in nobody's origin
            canvases += 1
            ours = {urlsplit(one).path.rpartition("/")[2] for one in policy["script-src"].split()}
            assert (policy["sandbox"], ours) == (
                "allow-scripts",
                {"canvas.js", "hand.js", "drag.js", "swap.js", "caret.js"},
            ), path
            assert all(one.partition("//")[2].startswith(f"127.0.0.1:{seeded.port}/static/")
                       for one in policy["script-src"].split()), path  # fmt: skip
            continue
        assert not {"allow-scripts", "allow-same-origin", "allow-top-navigation"} & set(policy["sandbox"].split()), path
        assert (policy["default-src"], policy["style-src"]) == ("'none'", "'unsafe-inline'"), path
        assert policy["img-src"] == f"https: data: {seeded.url}/m/" and policy["frame-ancestors"] == "'self'", path
        assert answer.headers["x-content-type-options"] == "nosniff" and "set-cookie" not in answer.headers, path
        assert [act for act in Reader(answer).acts if act != "<base>"] == [], path
        assert answer.text.count("<base") == answer.text.count('<base target="_blank">'), path
    assert canvases


def test_public_pages_say_it_in_words(seeded: Seeded) -> None:
    """Who unsubscribes, or reads in the browser, gets no more of it than those who are signed in."""
    page, mail = (seeded.client().request("GET", path) for path in (seeded.leave, seeded.view))

    assert (page.status, mail.status) == (200, 200)
    assert Reader(page).acts == [] and MARK in Reader(page).words and not _is_mail(page)
    assert Reader(mail).acts == [] and MARK in Reader(mail).words and _is_mail(mail)


def test_nothing_that_leads_to_a_script_is_taken(seeded: Seeded) -> None:
    """Where an address is asked for, one that runs is refused."""
    api = seeded.client()
    for url in ("javascript:alert(1)", "JaVaScRiPt:alert(1)", "data:text/html,<script>alert(1)</script>", "vbscript:x"):
        assert api.put("/brand", {"links": [{"url": url}]}).status == 422, url
        assert api.put("/brand", {"logo": url}).status == 422, url
        section = {"type": "button", "props": {"text": "x", "href": url}}
        assert api.post("/templates", {"design": {"sections": [section], "theme": {}}}).status == 422, url


def test_a_browser_runs_none_of_it(seeded: Seeded, seen: dict[str, Response], browser: Browser) -> None:
    """In Chromium no dialog opens on a page of any kind, nothing asks for what a payload names, none is an element."""
    problems = Problems()
    problems.allow("Blocked script execution in|x.example|status of 404|Failed to load resource")
    problems.allow('directive: "img-src|policy: img-src blocked')
    page = sign_in(new_page(browser, seeded.url, problems))
    dialogs: list[str] = []
    answered: list[str] = []

    def note(dialog: Dialog) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", note)
    # What the policy stops is announced as a request too, and never answered
    page.on("response", lambda response: answered.append(urlsplit(response.url).path))
    shown = {_kind(path): path for path, answer in seen.items() if answer.status == 200 and _is_html(answer)}
    for path in shown.values():
        page.goto(path, timeout=60_000)  # the reference draws for long
        page.wait_for_timeout(20)
        assert _strangers(page) == 0, path
    page.context.close()
    assert dialogs == [] and answered and not [path for path in answered if path.endswith("/x")]
    assert problems.found == []


def _strangers(page: Page) -> int:
    """Return how many elements of payloads are in a page, and in its frames."""
    alive = "svg[onload], [onerror], [onfocus], [hx-get='/x'], script:not([src])"
    return sum(int(frame.locator(alive).count()) for frame in page.frames)


def test_pictures_of_ours_are_shown_in_a_preview(seeded: Seeded, browser: Browser) -> None:
    """A mail within a page shows an uploaded picture, though it may load nothing else from here."""
    url = upload_picture(seeded.client(), saved(photo(), "PNG")).expect(201)["url"]
    body = f'<p>x</p><img src="{url}" alt="ours">'
    number = seeded.client().post("/templates", {"name": "Picture", "body": body}).expect(201)["id"]
    page = sign_in(new_page(browser, seeded.url, Problems()))
    page.goto(f"/templates/{number}/preview")
    page.wait_for_load_state("load")
    box = page.locator("img[alt=ours]").bounding_box()
    page.context.close()
    assert box is not None and box["width"] > 100
