"""Every page in two made-up languages: a long one, and one that is written from right to left."""

import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree.ElementTree import Element

import pytest
from playwright.sync_api import Browser, Page

from appliance.core import i18n
from tests.kit import pseudo_languages, sampling
from tests.kit.browser import Problems, new_page, sign_in
from tests.kit.client import Client
from tests.kit.html_page import HtmlPage, text_of
from tests.kit.pseudo_languages import LONG, RIGHT_TO_LEFT
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import Server
from tests.ui.test_pages import BLOCKED, DESK, PHONE, fill

# Runs in the page: the texts that people read or hear, with those of attributes; code, keys and typed values are not
# translated, nor are parts that are marked as English or as of another language.
TEXTS = """() => {
  const skipped = 'script, style, code, kbd, pre, svg, textarea, iframe, noscript, [lang]:not(html), .headers, '
    + '.snippet, [name=country_code] option, [name=locale] option, [name=language] option, [name=time_zone] option';
  const texts = [document.title];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, element = node.parentElement;
    if (!element.closest(skipped) && node.data.trim()) texts.push(node.data.trim().replace(/\\s+/g, ' '));
  }
  for (const name of ['aria-label', 'title', 'placeholder', 'alt'])
    for (const element of document.querySelectorAll(`[${name}]`))
      if (!element.closest(skipped) && element.getAttribute(name).trim()) texts.push(element.getAttribute(name).trim());
  return texts;
}"""
# The same for a page that is read without scripts
UNREAD = {"script", "style", "code", "kbd", "pre", "svg", "textarea", "iframe", "noscript", "template"}
OWN_NAMES = {"country_code", "locale", "language", "time_zone"}
# The direction is all that the layout of a language from right to left takes from the language
MEASURE = "direction => { const page = document.documentElement; page.dir = direction; return page.scrollWidth; }"
WIDTHS = ((PHONE, "ltr", "on_phone"), (PHONE, "rtl", "from_right_on_phone"), (DESK, "rtl", "from_right"))
# The parts of a text that no translation changes: names and addresses of the sample data, times, numbers and codes,
# names of providers and fonts, a sample contact, and the content of the starters of flows
KEPT = re.compile(
    r"camp_live_\S+|\S+@\S+|https?://\S+|\S*\.example\S*|<i onclick.*?\}\}|W{20,}|Person \d+|Newsletter"
    r"|Workshop|Monthly|Done one|A draft|Later|News\b|Hello|Bakery|owner|Campanero|UTC|Arial|Georgia"
    r"|Helvetica|Tahoma|Verdana|Trebuchet MS|Times New Roman|Courier New|[A-Z]{2,}|\w+\.\w+|\w+_\w+|\w+:\w+"
    r"|xn--\S+|\d+\. \w+kuuta|\w+tai\b|\w+kkona\b|keskiviikko\b|Amazon SES|Brevo|Fastmail|Gmail, Google Workspace"
    r"|Mail(?:gun|jet)|Microsoft(?: 365)?|Postmark|Resend|SendGrid|Twilio|eu-west-1|xkeysib-…|https://$"
    r"|Alex(?: Sample)?|/campanero|ssh-ed25519 AAAA…|Google|Keycloak|Authentik|\S*googleusercontent\.com|organizations"
    r"|Good to have you here.*|Thank you for joining us.*|What to read next|Take the tour|test\b"
    r"|Did we catch you at a bad time\?|Three good places to start|Too many emails, or too few.*"
    r"|newsletter|\{\{ [\w.]+ \}\}|source:|campaign:|Clicks a link|Does not click"
    r"|Unsubscribe$|englanti$|.*\(UTC\+00:00\) UTC-yleisaika$"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with sample data that supports the made-up languages."""
    directory = tmp_path_factory.mktemp("catalogues")
    with Server(env=pseudo_languages.environment(Path(directory))).set_up() as running:
        fill(running.client())
        fill_tests(running.client())
        yield running
        running.stop()


def fill_tests(api: Client) -> None:
    """Create a draft with an A/B test and a holdout, and a campaign whose test is decided."""
    list_id = next(row["id"] for row in api.get("/lists").expect(200) if row["name"] == "Newsletter")
    texts = {"subject": "News", "body": '<p>Hello <a href="https://shop.example/">News</a></p>'}
    body = {
        "template_attributes": texts, "trigger_attributes": {"contact_list_id": list_id},
        "experiment": {"variants": [{}, {"subject": "Hello"}], "test_share": 0.5, "holdout": 0.1,
                       "metric": "event", "event": "order_paid"},
    }  # fmt: skip
    api.post("/campaigns", {"name": "A draft", **body}).expect(201)
    sent_id = api.post("/campaigns", {"name": "Done one", **body}).expect(201)["id"]
    api.post(f"/campaigns/{sent_id}/send").expect(200)
    api.wait(f"/campaigns/{sent_id}", lambda row: row["waiting"] is not None or row["stats"]["sent"] > 20)
    api.post(f"/campaigns/{sent_id}/experiment/winner", {"variant": 2}).expect(200)
    api.wait(f"/campaigns/{sent_id}", lambda row: row["status"] == "completed")


def list_test_pages(api: Client) -> list[str]:
    """Return the pages of the two campaigns of `fill_tests`, of which others have fewer texts."""
    decided, draft = [row["id"] for row in api.get("/campaigns").expect(200) if row["experiment"]][:2]
    return [
        f"/campaigns/{draft}?open=experiment", f"/campaigns/{draft}/send", f"/campaigns/{draft}/previews",
        f"/campaigns/{decided}", f"/campaigns/{decided}/people", f"/campaigns/{decided}/links", "/activity",
    ]  # fmt: skip


def read_texts(page: HtmlPage) -> list[str]:
    """Return the texts of a page that people read or hear, as `TEXTS` does, but without those that scripts write."""
    texts: list[str] = []

    def read(element: Element) -> None:
        named = element.tag in ("select", "datalist") and element.get("name") in OWN_NAMES
        is_marked = "lang" in element.attrib or {"headers", "snippet"} & set(element.get("class", "").split())
        if element.tag in UNREAD or named or is_marked:
            return
        texts.extend(element.attrib[name] for name in ("aria-label", "title", "placeholder", "alt")
                     if name in element.attrib)  # fmt: skip
        texts.append(element.text or "")
        for child in element:
            read(child)
            texts.append(child.tail or "")

    read(page.one("body"))
    texts.append(text_of(page.one("head title")))
    return [" ".join(text.split()) for text in texts if text.strip()]


def crawl(page: Page, user: ScriptlessBrowser, first: list[str]) -> dict[str, dict]:
    """Visit one page of each kind that links lead to; return its texts, and the widths of some pages.

    `first` are visited whatever their kind. Without `--full` every third page is loaded in the browser, in the size of
    a phone; the others are read without scripts. Every twelfth, and all with `--full`, is laid out from right to left
    too.
    """
    # The second page of a table has what the first has, with a fifth of its rows
    waiting = [*first, "/", "/contacts?page=2", "/campaigns/3/send", "/contacts/61", "/inbox/1?view=headers"]
    seen: dict[str, dict] = {}
    while waiting:
        path = waiting.pop(0)
        kind = path if path in first else re.sub(r"\d+", "1", re.split("[?#]", path)[0])
        # Guides and the reference are English
        if kind in seen or re.search(r"/(preview|html)$", path) or kind.startswith("/docs/"):
            continue
        plain = HtmlPage(user, path)
        links = plain.all("a[href^=/]")
        waiting += [link.attrib["href"] for link in links if "download" not in link.attrib]
        seen[kind] = {"texts": read_texts(plain), "lang": plain.one("html").get("lang"), "path": plain.path}
        if not sampling.is_full and len(seen) % 3:
            continue
        page.goto(path)
        seen[kind]["texts"] = page.evaluate(TEXTS)
        for size, direction, name in WIDTHS if sampling.is_full or len(seen) % 4 == 0 else WIDTHS[:1]:
            if page.viewport_size != size:
                page.set_viewport_size(size)
            seen[kind][name] = page.evaluate(MEASURE, direction)
        page.set_viewport_size(PHONE)
    return seen


def find_untranslated(texts: list[str]) -> list[str]:
    """Return what is left of texts without the marked parts and those that no translation changes, if it has words.

    A marked part may reach over several texts, because elements within a sentence have texts of their own.
    """
    rest = "\n".join(texts)
    while (shorter := re.sub(r"⟦[^⟦⟧]*⟧", " ", rest)) != rest:
        rest = shorter
    return [line.strip()[:150] for line in rest.split("\n") if re.search(r"[A-Za-z]{3,}", KEPT.sub(" ", line))]


@pytest.fixture(scope="module")
def seen(browser: Browser, server: Server) -> dict[str, dict]:
    """What a user whose browser asks for the long language sees of each kind of page."""
    problems = Problems()
    problems.allow(BLOCKED)
    page = sign_in(new_page(browser, server.url, problems, width=PHONE["width"], locale=LONG))
    user = ScriptlessBrowser(server.client(), language=LONG)
    seen = crawl(page, user, list_test_pages(server.client()))
    page.context.close()
    assert problems.found == []
    return seen


def test_every_text_of_every_page_is_translated(seen: dict[str, dict]) -> None:
    """No page shows an English text to people with another language, and none is wider than the smallest phone."""
    assert len(seen) >= 40, sorted(seen)
    assert {kind: data["lang"] for kind, data in seen.items() if data["lang"] != LONG} == {}
    untranslated = {kind: faults for kind, data in seen.items() if (faults := find_untranslated(data["texts"]))}
    assert not untranslated, "\n".join(f"{kind}: {text}" for kind, texts in untranslated.items() for text in texts)
    widths = {data["path"]: data["on_phone"] for data in seen.values() if "on_phone" in data}
    assert len(widths) >= 10 and {path: width for path, width in widths.items() if width > PHONE["width"]} == {}


def test_pages_from_right_to_left(seen: dict[str, dict], api: Client) -> None:
    """Pages in a language that is written from right to left say so, and do not scroll sideways.

    The pages in the long language are laid out anew from right to left, because loading each page once more would
    differ only in its direction.
    """
    measured = {kind: data for kind, data in seen.items() if "from_right" in data}
    assert len(measured) >= 3
    user = ScriptlessBrowser(api)
    for data in measured.values():
        start = user.get(data["path"], **{"Accept-Language": RIGHT_TO_LEFT})[:200]
        assert f'<html lang="{RIGHT_TO_LEFT}" dir="rtl"' in start, data["path"]
    assert {kind: data["from_right"] for kind, data in measured.items() if data["from_right"] > DESK["width"]} == {}
    on_phone = {kind: data["from_right_on_phone"] for kind, data in measured.items()}
    assert {kind: width for kind, width in on_phone.items() if width > PHONE["width"]} == {}
    assert set(i18n.LANGUAGES) & {LONG, RIGHT_TO_LEFT} == set()
