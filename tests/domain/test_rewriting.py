"""Links that lead through us: which do, that they end where they were written to, and that all else stays as it is."""

import quopri
import re

import pytest

from appliance.content.designs import links as designs_links
from appliance.content.designs import links as numbering
from appliance.sending.messages import compose, links
from appliance.sending.messages.ledger import COLUMNS, Claim
from appliance.sending.messages.links import LinkRequest, LinkResolver, encode_url
from appliance.sending.messages.prepare import MessagePreparer
from appliance.storage import transactions
from appliance.storage.database import rows, run
from tests.domain.golden_links import LINKS
from tests.domain.home import Home

OURS = re.compile(r"http://127\.0\.0\.1:8080/c/([\w-]{19}-\d+)")
# What never leads through us
OTHERS = (
    "mailto:ann@example.org?subject=Hi", "tel:+441225000000", "sms:+441225000000", "#part", "/relative",
    "//example.org/x", "{{ unsubscribe_url }}", "{{ preferences_url }}", "{{ view_url }}", "{{ data.link }}",
    "https://{{ data.host }}/", "https://shop.{{ data.host }}/", "https:/example.org/one-slash", "ftp://example.org/",
)  # fmt: skip


def made(home: Home, body: str, person: dict[str, object] | None = None, **template: str) -> tuple[int, str, str]:
    """Send a body to one person; returns the message's id, and HTML and text as they leave."""
    contact = home.contact("ann@example.org", **(person or {"first_name": "Ann"}))
    campaign = home.send(home.campaign(home.list_of(contact.id).id, body=body, **template))
    (claim,) = (
        Claim._make(row)._replace(first_attempt_at=1)
        for row in rows(f"SELECT {COLUMNS} FROM message WHERE campaign_id = ?", (campaign.id,))
    )
    text, html = MessagePreparer().prepare(claim).envelope.content.split(b"--=_campanero")[1:3]
    return claim.id, *(quopri.decodestring(part).decode() for part in (html, text))


def led(token: str) -> str | None:
    """Return where a token leads, as the door asks."""
    read = links.read_click_token(token)
    assert read is not None
    found = LinkResolver().resolve([LinkRequest(*read)])
    return next(iter(found.values())).url


def test_sixty_links_end_where_they_were_written_to(home: Home) -> None:
    """Through cleaning, rewriting, storing and back: what a browser would ask for, byte by byte."""
    assert len(LINKS) == 60
    body = "".join(f'<p><a href="{written}">link {number}</a></p>' for number, (written, _) in enumerate(LINKS))
    _, html, _ = made(home, body)
    tokens = OURS.findall(html)
    assert len(tokens) == 60 and html.count("<a ") == 61
    for (written, wanted), token in zip(LINKS, tokens, strict=True):
        # Brackets and quotes that a browser would encode may be encoded
        assert led(token) in (wanted, wanted.replace('"', "%22")), written


@pytest.mark.parametrize("address", OTHERS)
def test_what_is_no_page_of_others_stays(address: str, home: Home) -> None:
    """Mail, telephone, anchors, our own ways out, and what a value could turn elsewhere keep their words."""
    assert not designs_links.is_trackable(address)
    html, text = designs_links.rewrite_links(
        f'<a href="{address}">x</a>', f"x ({address})", [address], "https://us.example"
    )
    assert f'<a href="{address}">x</a>' in html and text == f"x ({address})"


def test_comments_and_styles_stay(home: Home) -> None:
    """What only Outlook reads, and addresses in styles, are not touched."""
    html = (
        '<style>a { background: url(https://example.org/a.png) }</style><!-- <a href="https://example.org/">x</a> -->'
        '<!--[if mso]><a href="https://example.org/">mso</a><![endif]--><img src="https://example.org/b.png">'
        '<p title="https://example.org/">https://example.org/ <a href="https://example.org/">y</a></p>'
    )
    new, _ = designs_links.rewrite_links(
        html, "", [one.href for one in numbering.find_links(html)], "https://us.example"
    )
    assert (
        new.count("https://us.example/c/") == 1 and new.count("https://example.org/") == html.count("example.org/") - 1
    )
    assert new.startswith(html[: html.index("<a href", html.index("<p "))])


def test_the_picture_stands_at_the_end(home: Home) -> None:
    """Once, at the end of the body, with nothing to see; and the same token opens nothing else."""
    message_id, html, text = made(home, "<p>Hello</p>")
    found = re.findall(r'<img src="http://127\.0\.0\.1:8080/o/([\w-]+)\.gif" width="1" height="1" alt=""', html)
    assert len(found) == 1 and html.index("/o/") > html.index("Unsubscribe") and "/o/" not in text
    assert links.read_open_token(found[0]) == message_id
    assert links.read_click_token(f"{found[0]}-1") is None


def test_who_looks_at_it_here_is_not_counted(home: Home) -> None:
    """The picture is taken out of a mail that is shown to its author; all else stays."""
    _, html, _ = made(home, '<p>Hello <img src="https://example.org/o/a.gif" alt="A"></p>')
    shown = designs_links.remove_pixel(html, "http://127.0.0.1:8080")
    assert "127.0.0.1:8080/o/" not in shown and "https://example.org/o/a.gif" in shown
    assert len(html) - len(shown) < 160


def test_text_has_the_same_links(home: Home) -> None:
    """The text part names the numbers of the HTML; an address that only it has gets its own; full stops stay behind."""
    body = '<p><a href="https://example.org/a?b=1&amp;c=2">A</a> <a href="https://example.org/b_(c)">B</a></p>'
    text = "See https://example.org/a?b=1&c=2, then (https://example.org/b_(c)). Or https://example.org/only."
    content = compose.compile_message(compose.MessageSource("S", body, text))
    assert [one.href for one in content.links] == [
        "https://example.org/a?b=1&c=2", "https://example.org/b_(c)", "https://example.org/only",
    ]  # fmt: skip
    tracked = compose.track_links(content, tuple(one.href for one in content.links), "https://us.example")
    said = tracked.text.render({"track": {"click": "T"}})
    assert said == "See https://us.example/c/T-1, then (https://us.example/c/T-2). Or https://us.example/c/T-3."


def test_values_are_filled_in_when_it_is_followed(home: Home) -> None:
    """What an address says of a person is not in the mail, and is what the mail would have said."""
    body = (
        '<p><a href="https://example.org/{{ contact.data.city }}?for={{ contact.first_name | upcase }}'
        '&amp;c={{ campaign.name }}&amp;b={{ brand.company_name }}{% if contact.last_name %}&amp;l=1{% endif %}">A</a>'
    )
    person: dict[str, object] = {"first_name": "Änn & Co", "data": {"city": "Bad/Ems?"}}
    _, html, _ = made(home, body, person)
    (token,) = OURS.findall(html)
    assert "Bad" not in html
    assert led(token) == "https://example.org/Bad%2FEms%3F?for=%C3%84NN%20%26%20CO&c=Spring&b=Acme"


def test_one_damaged_person_is_led_on_and_holds_nobody_up(home: Home) -> None:
    """What cannot be read of them is left out of the address."""
    _, html, _ = made(home, '<p><a href="https://example.org/?n={{ contact.first_name }}&amp;x=1">A</a></p>')
    (token,) = OURS.findall(html)
    assert led(token) == "https://example.org/?n=Ann&x=1"
    transactions.write(run, "UPDATE contact SET data = '[1'")
    assert led(token) == "https://example.org/?n=&x=1"


def test_what_a_loop_goes_through_stays_in_the_mail(home: Home) -> None:
    """Behind the loop nobody knows any more what it went through, whatever it is called."""
    html = (
        "{% for item in data.items %}<a href='https://example.org/{{ item }}'>x</a>{% endfor %}"
        "{% for contact in data.items %}<a href='https://example.org/{{ contact.id }}'>x</a>{% endfor %}"
        "<a href='https://example.org/{{ data.id }}'>y</a>"
    )
    new, _ = designs_links.rewrite_links(
        html, "", [one.href for one in numbering.find_links(html)], "https://us.example"
    )
    assert re.findall(r"href='([^']*)'", new) == [
        "https://example.org/{{ item }}", "https://example.org/{{ contact.id }}",
        "https://us.example/c/{{ track.click }}-3",
    ]  # fmt: skip


def test_a_link_under_another_number_keeps_to_what_is_stored(home: Home) -> None:
    """A mail that is made otherwise than when its links were numbered leads nowhere wrong: by address, or plain."""
    html = "".join(f'<a href="https://example.org/{name}">x</a>' for name in "abc")
    stored = [f"https://example.org/{name}" for name in "cxa"]
    new, _ = designs_links.rewrite_links(html, "", stored, "https://us.example")
    assert re.findall(r'href="([^"]*)"', new) == [
        "https://us.example/c/{{ track.click }}-3", "https://example.org/b", "https://us.example/c/{{ track.click }}-1",
    ]  # fmt: skip


@pytest.mark.parametrize("tracking", ["none", "aggregate", "full"])
def test_who_wants_no_tracking_gets_the_links_as_written(tracking: str, home: Home) -> None:
    """No picture and no token; the others get both."""
    person: dict[str, object] = {"tracking": tracking}
    _, html, text = made(home, '<p><a href="https://example.org/a">A</a></p>', person)
    assert bool(OURS.search(html)) == bool(OURS.search(text)) == ("/o/" in html) == (tracking != "none")


def test_a_message_is_the_same_bytes_again(home: Home) -> None:
    """A repeat says what was said: the tokens follow from the message alone."""
    made(home, '<p><a href="https://example.org/a">A</a></p>')
    (claim,) = (Claim._make(row)._replace(first_attempt_at=1) for row in rows(f"SELECT {COLUMNS} FROM message"))
    assert MessagePreparer().prepare(claim) == MessagePreparer().prepare(claim)


@pytest.mark.parametrize(
    "address", ["javascript:alert(1)", "https://", "https:///x", "http://[::1", "data:text/html,x", "//x", "https://?x"]
)
def test_nothing_else_is_sent_as_an_address(address: str) -> None:
    """Only http and https with a host, whatever was stored."""
    assert encode_url(address) is None


def test_no_line_breaks_get_into_the_header() -> None:
    """Browsers leave them out, and so do we."""
    assert encode_url("https://example.org/a\r\nSet-Cookie: x") == "https://example.org/aSet-Cookie:%20x"
