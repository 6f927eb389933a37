"""Faults that were found once, each as small as it gets, so that none comes back."""

import resource
import threading
import time
from concurrent.futures import wait
from typing import Any

import pytest

from appliance.accounts.audit import Actor
from appliance.api import openapi
from appliance.audience.contacts import store
from appliance.audience.contacts.store import ContactQuery
from appliance.campaigns import states
from appliance.campaigns.store import TriggerWrite
from appliance.content.brand import BrandWrite
from appliance.content.designs import merge
from appliance.content.designs.merge_limits import MergeError
from appliance.core import addresses, clock, validation
from appliance.core.errors import Invalid, Uncertain
from appliance.sending.delivery import mime
from appliance.sending.messages import compose, transactional
from appliance.sending.messages.compose import MessageSource, Sender
from appliance.sending.messages.ledger import Outcome
from appliance.sending.messages.shared_content import EncodedMessage
from appliance.sending.messages.transactional import MessageWrite
from appliance.storage import transactions
from appliance.storage.database import close_database, rows, run, scalar
from tests.domain.home import Home, turn
from tests.kit.patience import soon

PATIENCE = 10


# -- consent -------------------------------------------------------------------------------------------------------


def test_c1_subscribed_email_false_on_a_new_contact(home: Home) -> None:
    """`subscribed_email: false` with a new address leaves it not opted in (docs/decisions.md#9, row 3)."""
    assert not home.upsert(email="a@example.org", subscribed_email=False).contact.channels[0].subscribed


def test_c2_opt_in_false_with_channels_attributes(home: Home) -> None:
    """`opt_in: false` without `email` means every channel, also those that the same body adds."""
    body = {"channels_attributes": [{"value": "a@example.org"}], "opt_in": False}
    assert not home.upsert(**body).contact.channels[0].subscribed


def test_c3_no_opt_in_is_invented(home: Home) -> None:
    """A no for an operator-opted-out address leaves no consent row that says opt_in."""
    home.upsert(email="a@example.org", opt_in=False)
    home.upsert(email="a@example.org", subscribed_email=False)
    assert home.acts("a@example.org") == []


def test_c4_a_lifted_opt_out_is_not_called_kept(home: Home) -> None:
    """A yes (`subscribed_email: true`) that lifts a recipient's opt-out does not also name it as kept."""
    home.contact("a@example.org")
    home.leave("a@example.org")
    done = home.upsert(email="a@example.org", subscribed_email=True)
    assert done.contact.channels[0].subscribed and done.kept_opt_out == []


# -- the writer ----------------------------------------------------------------------------------------------------


def test_w1_a_full_disk_stores_nothing_it_refused(home: Home) -> None:
    """SQLITE_FULL may end the whole transaction; a later verb of that batch told Unavailable must not be stored."""
    run("CREATE TABLE note (text TEXT, load BLOB)")
    close_database()
    transactions.start()
    transactions.write(lambda: rows(f"PRAGMA max_page_count = {scalar('PRAGMA page_count')}"))
    begun, go = threading.Event(), threading.Event()
    found = [transactions.submit(lambda: (begun.set(), go.wait(PATIENCE)))]
    assert begun.wait(PATIENCE)
    time.sleep(0.05)  # so that the batch of the one that waits ends with it
    found.append(transactions.submit(run, "INSERT INTO note VALUES ('first', NULL)"))
    found.append(transactions.submit(run, "INSERT INTO note VALUES ('big', zeroblob(5000000))"))
    found.append(transactions.submit(run, "INSERT INTO note VALUES ('last', NULL)"))
    go.set()
    wait(found, PATIENCE)
    told_yes = [
        name for name, future in zip(("first", "big", "last"), found[1:], strict=True) if not future.exception()
    ]
    assert [row[0] for row in rows("SELECT text FROM note")] == told_yes


def test_w2_the_writer_survives_what_follows_a_commit(home: Home) -> None:
    """An after_commit function that raises is logged; it does not end the writer and hang every later write."""
    transactions.start()
    transactions.submit(lambda: transactions.after_commit(lambda: 1 / 0)).result(PATIENCE)
    assert transactions.submit(lambda: 5).result(PATIENCE) == 5


# -- merge language ------------------------------------------------------------------------------------------------

BOMBS = {
    "join of a range": "{{ (1..100000000) | join: '-' | size }}",
    "replace of replaces": "{{ 'a'" + " | replace: 'a', 'aaaaaaaaaa'" * 10 + " | size }}",
    "size of a joined range": "{% if true %}{{ (1..20000000) | join | size }}{% endif %}",
}


@pytest.mark.parametrize("name", BOMBS)
def test_m1_filters_have_limits_too(name: str) -> None:
    """A chain of filters that would take gigabytes or seconds is a MergeError within a second (T02; 50 ms)."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, before[1]))
    began = time.perf_counter()
    try:
        with pytest.raises(MergeError):
            merge.compile_template(BOMBS[name], "text").render({})
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    assert time.perf_counter() - began < soon(1)


def test_m2_a_hundred_rounds() -> None:
    """A `for` has 100 rounds (docs/decisions.md#11): the 101st is refused."""
    with pytest.raises(MergeError):
        merge.compile_template("{% for i in (1..101) %}x{% endfor %}", "text").render({})


def test_m3_private_names_have_a_place() -> None:
    """The refusal of a private name tells line and column as every other."""
    with pytest.raises(MergeError) as caught:
        merge.compile_template("a\n {{ contact._x }}", "text")
    assert caught.value.line == 2


def test_m4_private_loop_variables() -> None:
    """No name begins with an underscore, also not one that a loop makes."""
    with pytest.raises(MergeError):
        merge.compile_template("{% for _x in a %}{{ _x }}{% endfor %}", "text")


def test_m5_money() -> None:
    """`money` is a filter of the language (docs/decisions.md#11)."""
    merge.compile_template("{{ amount | money }}", "text")


# -- composing and writing mail ------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", ["<p>Write unsubscribe_url here</p>", "<p>x</p><!-- {{ unsubscribe_url }} -->",
                                  "{% comment %}{{ unsubscribe_url }}{% endcomment %}<p>x</p>"])  # fmt: skip
def test_p1_a_way_out_that_can_be_seen(body: str) -> None:
    """The footer is left out only if the author shows a link: not for the word, a comment, a hidden tag."""
    filled = compose.fill(
        compose.compile_message(MessageSource("s", body, marketing=True)), {"unsubscribe_url": "https://x.test/u/1"}
    )
    assert 'href="https://x.test/u/1"' in filled.html and "https://x.test/u/1" in filled.text


def test_p2_private_use_characters() -> None:
    """A body with the characters that stand for merge tags inside is still a body."""
    compose.compile_message(MessageSource("s", "<p>\ue0005\ue001</p>"))


def test_p3_the_preheader_of_html_without_body() -> None:
    """A preheader is kept when the author's HTML has <html> but no <body>."""
    assert "Look" in compose.compile_message(MessageSource("s", "<html><p>x</p></html>", preheader="Look")).html.source


def test_p4_reply_to_travels_as_ascii(home: Home) -> None:
    """An IDN in Reply-To is written as its A-label, as in From and To: headers are ASCII without SMTPUTF8."""
    parts = EncodedMessage(compose.compile_message(MessageSource("s", "x")))
    sender = Sender("a@example.org", None, "answers@münchen.de")
    assert mime.write(parts.build_mail({}, sender, 1, "b@example.org", 0.0, ())).isascii()


def put(home: Home, headers: dict[str, str]) -> Any:
    """Post a message with headers."""
    body = {"to": "z@example.org", "subject": "s", "body": "b", "headers": headers}
    return transactions.write(transactional.queue_message, home.account_id, validation.read(MessageWrite, body))


@pytest.mark.parametrize("headers", [{"X-A\n": "v"}, {"X-A": "v\n"}])
def test_p5_headers_with_a_line_feed(headers: dict[str, str], home: Home) -> None:
    """`$` lets a line feed at the end through: name or value with one is 422 at the door."""
    with pytest.raises(Invalid):
        put(home, headers)


# -- ledger --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["cancel", "leave", "later"])
def test_l2_what_may_have_been_taken_is_uncertain(how: str, home: Home) -> None:
    """A message in doubt that may not be tried again ends `uncertain`, not `cancelled` or `skipped` (not attempted)."""
    contact = home.contact("a@example.org")
    campaign = home.send(home.campaign(home.list_of(contact.id).id))
    claim = turn(None, True)
    if how == "cancel":
        transactions.write(states.cancel, home.account_id, campaign.id, Actor("key:1"))
    turn(Outcome(claim, Uncertain("broke after the dot")), False)
    if how == "leave":
        home.leave("a@example.org")
    if how == "later":
        transactions.write(states.cancel, home.account_id, campaign.id, Actor("key:1"))
    turn(None, True)
    assert scalar("SELECT status FROM message WHERE id = ?", (claim.id,)) == "uncertain"


# -- readers -------------------------------------------------------------------------------------------------------


def test_r1_only_ascii_digits_are_a_phone() -> None:
    """A number in other digits is either normalised to ASCII or refused, never stored as it is."""
    try:
        assert addresses.parse_phone("+1٤١٥٥٥٥٠١٢٣").key == "+14155550123"
    except ValueError:
        return


@pytest.mark.parametrize("number", ["+88312345678", "+80012345678"])
def test_r2_no_country_is_none(number: str) -> None:
    """A number of no country has no country: `001` is not two letters."""
    assert addresses.country_of_phone(number) is None


@pytest.mark.parametrize(
    ("kind", "body"), [(BrandWrite, {"brand_color": "#ffffff\n"}), (TriggerWrite, {"event": "abc\n"})]
)
def test_r3_patterns_end_at_the_end(kind: Any, body: dict[str, Any]) -> None:
    """A pattern that ends in `$` lets a line feed through; it has to end with the text."""
    with pytest.raises(Invalid):
        validation.read(kind, body)


@pytest.mark.parametrize("text", ["0999-01-01T00:00:00Z", "9999-12-31T23:59:59-12:00", "1969-12-31T23:59:59Z"])
def test_r4_a_time_that_cannot_be_shown_again_is_refused(text: str) -> None:
    """Before 1970 and after 9999 nothing is stored."""
    with pytest.raises(ValueError):
        clock.parse(text)


@pytest.mark.parametrize("text", ["1e3", "2.0"])
def test_r5_a_page_is_an_integer(text: str) -> None:
    """`page` that is not written as an integer is 422 (docs/decisions.md#4)."""
    with pytest.raises(Invalid):
        validation.read(ContactQuery, {"page": text}, loose=True)


def test_r6_huge_numbers_are_no_error(home: Home) -> None:
    """A page or id beyond SQLite's integers is an empty page or a fault, never OverflowError (500)."""
    home.contact("ann@example.org")
    assert list(store.find_by_words(home.account_id, "ann", page_number=10**30).rows) == []
    with pytest.raises(Invalid):
        store.fetch_page(home.account_id, validation.read(ContactQuery, {"list_id": str(10**30)}, loose=True))


def test_o1_schemas_have_plain_names(home: Home) -> None:
    """No schema of the published document is named by a module of ours."""
    assert [name for name in openapi.build_document()["components"]["schemas"] if "." in name] == []
