"""Tracking links: which links are rewritten, where they lead, and what stays unchanged."""

import quopri
import re
import time

import pytest

from appliance.content.designs import links as designs_links
from appliance.content.designs import links as numbering
from appliance.core import clock
from appliance.sending.messages import compose, links
from appliance.sending.messages.ledger import COLUMNS, LedgerRow
from appliance.sending.messages.links import ClickShares, LinkRequest, LinkResolver, encode_url
from appliance.sending.messages.prepare import MessagePreparer
from appliance.storage import transactions
from appliance.storage.database import rows, run
from tests.domain.golden_links import LINKS
from tests.domain.home import Home

OURS = re.compile(r"http://127\.0\.0\.1:8080/c/([\w-]{19}-\d+)")
# URLs that are never tracked
OTHERS = (
    "mailto:ann@example.org?subject=Hi", "tel:+441225000000", "sms:+441225000000", "#part", "/relative",
    "//example.org/x", "{{ unsubscribe_url }}", "{{ preferences_url }}", "{{ view_url }}", "{{ data.link }}",
    "https://{{ data.host }}/", "https://shop.{{ data.host }}/", "https:/example.org/one-slash", "ftp://example.org/",
)  # fmt: skip


def send_message(
    home: Home, body: str, contact_fields: dict[str, object] | None = None, **template: str
) -> tuple[int, str, str]:
    """Send a body to one contact, and return the message's id, its HTML and its text."""
    contact = home.contact("ann@example.org", **(contact_fields or {"first_name": "Ann"}))
    campaign = home.send(home.campaign(home.list_of(contact.id).id, body=body, **template))
    (ledger_row,) = (
        LedgerRow._make(row)._replace(first_attempt_at=1)
        for row in rows(f"SELECT {COLUMNS} FROM message WHERE campaign_id = ?", (campaign.id,))
    )
    text, html = MessagePreparer().prepare(ledger_row).envelope.content.split(b"--=_campanero")[1:3]
    return ledger_row.id, *(quopri.decodestring(part).decode() for part in (html, text))


def resolve_token(token: str) -> str | None:
    """Return the URL of a click token."""
    link = links.read_click_token(token)
    assert link is not None
    targets = LinkResolver().resolve([LinkRequest(*link)])
    return next(iter(targets.values())).url


def test_links_resolve_to_their_original_urls(home: Home) -> None:
    """After sanitizing, rewriting and storing, each of 60 links has the URL that a browser would request."""
    assert len(LINKS) == 60
    body = "".join(f'<p><a href="{written}">link {number}</a></p>' for number, (written, _) in enumerate(LINKS))
    _, html, _ = send_message(home, body)
    tokens = OURS.findall(html)
    assert len(tokens) == 60 and html.count("<a ") == 61
    for (written, expected), token in zip(LINKS, tokens, strict=True):
        # A quote may be percent-encoded, as a browser would do
        assert resolve_token(token) in (expected, expected.replace('"', "%22")), written


@pytest.mark.parametrize("address", OTHERS)
def test_other_addresses_are_not_rewritten(address: str, home: Home) -> None:
    """Mail, phone, anchors, relative URLs, our own links and hosts from merge tags stay as they are."""
    assert not designs_links.is_trackable(address)
    html, text = designs_links.rewrite_links(
        f'<a href="{address}">x</a>', f"x ({address})", [address], "https://us.example"
    )
    assert f'<a href="{address}">x</a>' in html and text == f"x ({address})"


def test_comments_and_styles_are_not_rewritten(home: Home) -> None:
    """URLs in comments, Outlook conditionals, styles, images and text stay as they are."""
    html = (
        '<style>a { background: url(https://example.org/a.png) }</style><!-- <a href="https://example.org/">x</a> -->'
        '<!--[if mso]><a href="https://example.org/">mso</a><![endif]--><img src="https://example.org/b.png">'
        '<p title="https://example.org/">https://example.org/ <a href="https://example.org/">y</a></p>'
    )
    rewritten, _ = designs_links.rewrite_links(
        html, "", [link.href for link in numbering.find_links(html)], "https://us.example"
    )
    assert (
        rewritten.count("https://us.example/c/") == 1
        and rewritten.count("https://example.org/") == html.count("example.org/") - 1
    )
    assert rewritten.startswith(html[: html.index("<a href", html.index("<p "))])


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("See acme.example/menu.", ["acme.example/menu"]), ("www.acme.co.uk, now", ["www.acme.co.uk"]),
        ("Visit acme.com!", ["acme.com"]), ("https://acme.com/a.com", []), ("ana@acme.com and St.Pauli", []),
        ("At 7.30 p.m. e.g. here.So", []), ("{{ data.it }} {{ view_url }}", []),
        ("acme.com or https://acme.com", ["acme.com"]),
    ],
)  # fmt: skip
def test_links_without_a_scheme(text: str, addresses: list[str]) -> None:
    """Addresses without https:// are found in plain text; what only looks like one is not."""
    assert [place.address for place in numbering.find_bare_links(text)] == addresses
    assert numbering.add_schemes(text).count("https://") == text.count("https://") + len(addresses)


def test_the_name_of_a_linked_picture(home: Home) -> None:
    """A link on a picture is named by the alternative text of the picture, without brackets."""
    html = '<a href="https://a.example"><img src="https://p.example/i.png" alt="Instagram"></a>'
    assert [link.words for link in numbering.find_links(html)] == ["Instagram"]


def test_the_tracking_pixel(home: Home) -> None:
    """The HTML has one invisible pixel at its end; its token is not valid as a click token."""
    message_id, html, text = send_message(home, "<p>Hello</p>")
    tokens = re.findall(r'<img src="http://127\.0\.0\.1:8080/o/([\w-]+)\.gif" width="1" height="1" alt=""', html)
    assert len(tokens) == 1 and html.index("/o/") > html.index("Unsubscribe") and "/o/" not in text
    assert links.read_open_token(tokens[0]) == message_id
    assert links.read_click_token(f"{tokens[0]}-1") is None


def test_the_pixel_is_removed_for_display(home: Home) -> None:
    """A message shown to its author has no tracking pixel; other images stay."""
    _, html, _ = send_message(home, '<p>Hello <img src="https://example.org/o/a.gif" alt="A"></p>')
    shown = designs_links.remove_pixel(html)
    assert "127.0.0.1:8080/o/" not in shown and "https://example.org/o/a.gif" in shown
    assert len(html) - len(shown) < 160


def test_the_text_part_has_tracked_links(home: Home) -> None:
    """The text has the link numbers of the HTML and new ones for other URLs; punctuation after a URL is kept."""
    body = '<p><a href="https://example.org/a?b=1&amp;c=2">A</a> <a href="https://example.org/b_(c)">B</a></p>'
    text = "See https://example.org/a?b=1&c=2, then (https://example.org/b_(c)). Or https://example.org/only."
    content = compose.compile_message(compose.MessageSource("S", body, text))
    assert [link.href for link in content.links] == [
        "https://example.org/a?b=1&c=2", "https://example.org/b_(c)", "https://example.org/only",
    ]  # fmt: skip
    tracked = compose.track_links(content, tuple(link.href for link in content.links), "https://us.example")
    rendered = tracked.text.render({"track": {"click": "T"}})
    assert rendered == "See https://us.example/c/T-1, then (https://us.example/c/T-2). Or https://us.example/c/T-3."


def test_merge_tags_in_urls_are_resolved_on_click(home: Home) -> None:
    """The message does not have the values; the resolved URL has them encoded."""
    body = (
        '<p><a href="https://example.org/{{ contact.data.city }}?for={{ contact.first_name | upcase }}'
        '&amp;c={{ campaign.name }}&amp;b={{ brand.company_name }}{% if contact.last_name %}&amp;l=1{% endif %}">A</a>'
    )
    contact_fields: dict[str, object] = {"first_name": "Änn & Co", "data": {"city": "Bad Ems/Lahn?"}}
    _, html, _ = send_message(home, body, contact_fields)
    (token,) = OURS.findall(html)
    assert "Ems/Lahn" not in html and "Ems%2FLahn" not in html
    assert resolve_token(token) == "https://example.org/Bad%20Ems%2FLahn%3F?for=%C3%84NN%20%26%20CO&c=Spring&b=Acme"


def test_a_link_of_a_damaged_contact_is_resolved(home: Home) -> None:
    """Values that cannot be read are left out of the URL."""
    _, html, _ = send_message(home, '<p><a href="https://example.org/?n={{ contact.first_name }}&amp;x=1">A</a></p>')
    (token,) = OURS.findall(html)
    assert resolve_token(token) == "https://example.org/?n=Ann&x=1"
    transactions.write(run, "UPDATE contact SET data = '[1'")
    assert resolve_token(token) == "https://example.org/?n=&x=1"


def test_links_with_loop_variables_are_not_tracked(home: Home) -> None:
    """The value of a loop's variable is not known at the click, whatever its name."""
    html = (
        "{% for item in data.items %}<a href='https://example.org/{{ item }}'>x</a>{% endfor %}"
        "{% for contact in data.items %}<a href='https://example.org/{{ contact.id }}'>x</a>{% endfor %}"
        "<a href='https://example.org/{{ data.id }}'>y</a>"
    )
    rewritten, _ = designs_links.rewrite_links(
        html, "", [link.href for link in numbering.find_links(html)], "https://us.example"
    )
    assert re.findall(r"href='([^']*)'", rewritten) == [
        "https://example.org/{{ item }}", "https://example.org/{{ contact.id }}",
        "https://us.example/c/{{ track.click }}-3",
    ]  # fmt: skip


def test_links_match_the_stored_urls(home: Home) -> None:
    """Each link gets the number of its stored URL; one that is not stored is not tracked."""
    html = "".join(f'<a href="https://example.org/{name}">x</a>' for name in "abc")
    stored = [f"https://example.org/{name}" for name in "cxa"]
    rewritten, _ = designs_links.rewrite_links(html, "", stored, "https://us.example")
    assert re.findall(r'href="([^"]*)"', rewritten) == [
        "https://us.example/c/{{ track.click }}-3", "https://example.org/b", "https://us.example/c/{{ track.click }}-1",
    ]  # fmt: skip


@pytest.mark.parametrize("tracking", ["none", "aggregate", "full"])
def test_contacts_without_tracking_get_plain_links(tracking: str, home: Home) -> None:
    """With tracking `none` a message has neither a pixel nor tokens; with the other choices it has both."""
    contact_fields: dict[str, object] = {"tracking": tracking}
    _, html, text = send_message(home, '<p><a href="https://example.org/a">A</a></p>', contact_fields)
    assert bool(OURS.search(html)) == bool(OURS.search(text)) == ("/o/" in html) == (tracking != "none")


def test_tracked_messages_are_reproducible(home: Home) -> None:
    """Preparing a message twice gives the same bytes, tokens included."""
    send_message(home, '<p><a href="https://example.org/a">A</a></p>')
    (ledger_row,) = (
        LedgerRow._make(row)._replace(first_attempt_at=1) for row in rows(f"SELECT {COLUMNS} FROM message")
    )
    assert MessagePreparer().prepare(ledger_row) == MessagePreparer().prepare(ledger_row)


@pytest.mark.parametrize(
    "address", ["javascript:alert(1)", "https://", "https:///x", "http://[::1", "data:text/html,x", "//x", "https://?x"]
)
def test_encode_url_rejects_other_addresses(address: str) -> None:
    """Only http and https URLs with a host are accepted."""
    assert encode_url(address) is None


def test_encode_url_removes_line_breaks() -> None:
    """Line breaks in a URL are removed, as browsers do."""
    assert encode_url("https://example.org/a\r\nSet-Cookie: x") == "https://example.org/aSet-Cookie:%20x"


COSTLY_URL = (
    "https://x.example/?a={% for i in (1..100) %}{% for j in (1..100) %}{% if i == 999 %}x{% endif %}{% endfor %}"
    "{% endfor %}"
)


def test_a_costly_link_is_not_filled_again_at_once(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A click allows 2 ms for a URL; one that takes longer has no target for a while, and takes no more time."""
    message_id, _, _ = send_message(home, f'<a href="{COSTLY_URL}">x</a>')
    link, now = LinkRequest(message_id, 1), clock.monotonic()
    resolver = LinkResolver(ClickShares())
    monkeypatch.setattr(clock, "monotonic", lambda: now)
    started = time.thread_time()
    assert resolver.resolve([link])[link].url is None
    assert time.thread_time() - started < 0.04
    filled: list[str] = []
    monkeypatch.setattr(links, "_fill_url", lambda url, *_: filled.append(url))
    assert resolver.resolve([link])[link].url is None and not filled
    now += 61
    assert resolver.resolve([link])[link].url is None and len(filled) == 1


def test_the_costly_links_of_an_account_wait_for_its_share(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """An account that used up its share gets it back with time; links without merge tags are not affected."""
    body = '<a href="https://x.example/?a={{ first_name }}">x</a><a href="https://x.example/plain">y</a>'
    message_id, _, _ = send_message(home, body)
    filled, plain = LinkRequest(message_id, 1), LinkRequest(message_id, 2)
    now = clock.monotonic()
    monkeypatch.setattr(clock, "monotonic", lambda: now)
    shares = ClickShares()
    resolver = LinkResolver(shares)
    for _ in range(1_000):
        shares.charge(1, 0.0001)
    assert resolver.resolve([filled])[filled].url == "https://x.example/?a=Ann"
    shares.charge(1, 0.5)
    assert shares.has_time(2)
    targets = resolver.resolve([filled, plain])
    assert (targets[filled].url, targets[filled].is_postponed) == (None, True)
    assert (targets[plain].url, targets[plain].is_postponed) == ("https://x.example/plain", False)
    now += 3
    assert resolver.resolve([filled])[filled].url == "https://x.example/?a=Ann"
