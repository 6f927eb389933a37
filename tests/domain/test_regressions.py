"""Regression tests: one small test for each fault that was found."""

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
from appliance.campaigns.trigger import TriggerWrite
from appliance.content.brand import BrandWrite
from appliance.content.designs import merge
from appliance.content.designs.merge_limits import MergeError
from appliance.core import addresses, clock, validation
from appliance.core.errors import Invalid, Uncertain
from appliance.sending.delivery import mime
from appliance.sending.messages import compose, transactional
from appliance.sending.messages.compose import MessageSource, Sender
from appliance.sending.messages.encoded_email import EncodedMessage
from appliance.sending.messages.ledger import Outcome
from appliance.sending.messages.transactional import MessageWrite
from appliance.storage import transactions
from appliance.storage.database import close_database, rows, run, scalar
from tests.domain.home import Home, record_and_claim
from tests.kit.timeouts import extend_timeout

PATIENCE = 10


# -- consent -------------------------------------------------------------------------------------------------------


def test_c1_subscribed_email_false_on_a_new_contact(home: Home) -> None:
    """`subscribed_email: false` with a new address does not opt it in (docs/decisions.md#9, row 3)."""
    assert not home.upsert(email="a@example.org", subscribed_email=False).contact.channels[0].subscribed


def test_c2_opt_in_false_with_channels_attributes(home: Home) -> None:
    """`opt_in: false` applies to all channels, also to those that the same request adds."""
    body = {"channels_attributes": [{"value": "a@example.org"}], "opt_in": False}
    assert not home.upsert(**body).contact.channels[0].subscribed


def test_c3_no_opt_in_evidence_without_consent(home: Home) -> None:
    """Repeated refusals for an address without opt-in write no consent row."""
    home.upsert(email="a@example.org", opt_in=False)
    home.upsert(email="a@example.org", subscribed_email=False)
    assert home.consent_rows("a@example.org") == []


def test_c4_a_lifted_opt_out_is_not_reported_as_kept(home: Home) -> None:
    """`subscribed_email: true` that lifts a recipient's opt-out does not list it in `kept_opt_out`."""
    home.contact("a@example.org")
    home.opt_out("a@example.org")
    result = home.upsert(email="a@example.org", subscribed_email=True)
    assert result.contact.channels[0].subscribed and result.kept_opt_out == []


# -- the writer ----------------------------------------------------------------------------------------------------


def test_w1_a_full_disk_stores_no_rejected_write(home: Home) -> None:
    """SQLITE_FULL may end the whole transaction; exactly the writes that returned no error are stored."""
    run("CREATE TABLE note (text TEXT, load BLOB)")
    close_database()
    transactions.start()
    transactions.write(lambda: rows(f"PRAGMA max_page_count = {scalar('PRAGMA page_count')}"))
    started, may_end = threading.Event(), threading.Event()
    futures = [transactions.submit(lambda: (started.set(), may_end.wait(PATIENCE)))]
    assert started.wait(PATIENCE)
    time.sleep(0.05)  # so that the batch of the waiting write ends with it
    futures.append(transactions.submit(run, "INSERT INTO note VALUES ('first', NULL)"))
    futures.append(transactions.submit(run, "INSERT INTO note VALUES ('big', zeroblob(5000000))"))
    futures.append(transactions.submit(run, "INSERT INTO note VALUES ('last', NULL)"))
    may_end.set()
    wait(futures, PATIENCE)
    succeeded = [
        name for name, future in zip(("first", "big", "last"), futures[1:], strict=True) if not future.exception()
    ]
    assert [row[0] for row in rows("SELECT text FROM note")] == succeeded


def test_w2_the_writer_survives_a_failing_after_commit(home: Home) -> None:
    """An after_commit function that raises does not end the writer thread."""
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
def test_m1_chains_of_filters_are_limited(name: str) -> None:
    """A chain of filters that would take gigabytes or seconds raises MergeError within a second (T02; 50 ms)."""
    limits_before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, limits_before[1]))
    started = time.perf_counter()
    try:
        with pytest.raises(MergeError):
            merge.compile_template(BOMBS[name], "text").render({})
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits_before)
    assert time.perf_counter() - started < extend_timeout(1)


def test_m2_loops_have_at_most_100_rounds() -> None:
    """The 101st round of a `for` is rejected (docs/decisions.md#11)."""
    with pytest.raises(MergeError):
        merge.compile_template("{% for i in (1..101) %}x{% endfor %}", "text").render({})


def test_m3_errors_of_private_names_have_a_line() -> None:
    """The error of a private name has its line."""
    with pytest.raises(MergeError) as caught:
        merge.compile_template("a\n {{ contact._x }}", "text")
    assert caught.value.line == 2


def test_m4_private_loop_variables_are_rejected() -> None:
    """The variable of a loop must not begin with an underscore."""
    with pytest.raises(MergeError):
        merge.compile_template("{% for _x in a %}{{ _x }}{% endfor %}", "text")


def test_m5_money_is_a_filter() -> None:
    """`money` is a filter of the language (docs/decisions.md#11)."""
    merge.compile_template("{{ amount | money }}", "text")


# -- composing and writing mail ------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", ["<p>Write unsubscribe_url here</p>", "<p>x</p><!-- {{ unsubscribe_url }} -->",
                                  "{% comment %}{{ unsubscribe_url }}{% endcomment %}<p>x</p>"])  # fmt: skip
def test_p1_the_unsubscribe_link_must_be_visible(body: str) -> None:
    """The link is added unless the body shows one: the name in text, a comment or a hidden tag does not count."""
    filled = compose.fill(
        compose.compile_message(MessageSource("s", body, marketing=True)), {"unsubscribe_url": "https://x.test/u/1"}
    )
    assert 'href="https://x.test/u/1"' in filled.html and "https://x.test/u/1" in filled.text


def test_p2_private_use_characters_are_allowed() -> None:
    """A body with the characters that mark merge tags internally is compiled."""
    compose.compile_message(MessageSource("s", "<p>\ue0005\ue001</p>"))


def test_p3_the_preheader_of_html_without_body() -> None:
    """The preheader is kept in HTML with <html> but without <body>."""
    assert "Look" in compose.compile_message(MessageSource("s", "<html><p>x</p></html>", preheader="Look")).html.source


def test_p4_an_idn_in_reply_to_is_ascii(home: Home) -> None:
    """An internationalized domain in Reply-To is written as its A-label: headers are ASCII without SMTPUTF8."""
    parts = EncodedMessage(compose.compile_message(MessageSource("s", "x")))
    sender = Sender("a@example.org", None, "answers@münchen.de")
    assert mime.write(parts.build_mail({}, sender, 1, "b@example.org", 0.0, ())).isascii()


def queue_message(home: Home, headers: dict[str, str]) -> Any:
    """Queue a transactional message with headers."""
    body = {"to": "z@example.org", "subject": "s", "body": "b", "headers": headers}
    return transactions.write(transactional.queue_message, home.account_id, validation.read(MessageWrite, body))


@pytest.mark.parametrize("headers", [{"X-A\n": "v"}, {"X-A": "v\n"}])
def test_p5_headers_with_a_line_feed_are_rejected(headers: dict[str, str], home: Home) -> None:
    """A line feed at the end of a header's name or value is rejected, though `$` in a pattern matches before it."""
    with pytest.raises(Invalid):
        queue_message(home, headers)


# -- ledger --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", ["cancel", "leave", "later"])
def test_l2_a_message_in_doubt_ends_uncertain(event: str, home: Home) -> None:
    """After a cancel or an unsubscribe a message in doubt ends `uncertain`, not `cancelled` or `skipped`."""
    contact = home.contact("a@example.org")
    campaign = home.send(home.campaign(home.list_of(contact.id).id))
    row = record_and_claim(None, True)
    if event == "cancel":
        transactions.write(states.cancel, home.account_id, campaign.id, Actor("key:1"))
    record_and_claim(Outcome(row, Uncertain("broke after the dot")), False)
    if event == "leave":
        home.opt_out("a@example.org")
    if event == "later":
        transactions.write(states.cancel, home.account_id, campaign.id, Actor("key:1"))
    record_and_claim(None, True)
    assert scalar("SELECT status FROM message WHERE id = ?", (row.id,)) == "uncertain"


# -- parsing -------------------------------------------------------------------------------------------------------


def test_r1_phone_digits_become_ascii() -> None:
    """A number in other digits is converted to ASCII or rejected, never stored as it is."""
    try:
        assert addresses.parse_phone("+1٤١٥٥٥٥٠١٢٣").key == "+14155550123"
    except ValueError:
        return


@pytest.mark.parametrize("number", ["+88312345678", "+80012345678"])
def test_r2_numbers_of_no_country(number: str) -> None:
    """The country of a number that belongs to no country is None, not `001`."""
    assert addresses.country_of_phone(number) is None


@pytest.mark.parametrize(
    ("kind", "body"), [(BrandWrite, {"brand_color": "#ffffff\n"}), (TriggerWrite, {"event": "abc\n"})]
)
def test_r3_patterns_reject_a_final_line_feed(kind: Any, body: dict[str, Any]) -> None:
    """A value with a line feed at its end does not match."""
    with pytest.raises(Invalid):
        validation.read(kind, body)


@pytest.mark.parametrize("text", ["0999-01-01T00:00:00Z", "9999-12-31T23:59:59-12:00", "1969-12-31T23:59:59Z"])
def test_r4_times_out_of_range_are_rejected(text: str) -> None:
    """Times before 1970 and after 9999 are rejected."""
    with pytest.raises(ValueError):
        clock.parse(text)


@pytest.mark.parametrize("text", ["1e3", "2.0"])
def test_r5_a_page_must_be_an_integer(text: str) -> None:
    """A `page` that is not written as an integer is rejected (docs/decisions.md#4)."""
    with pytest.raises(Invalid):
        validation.read(ContactQuery, {"page": text}, loose=True)


def test_r6_huge_numbers_raise_no_overflow(home: Home) -> None:
    """A page or id beyond SQLite's integers gives an empty page or Invalid, never OverflowError."""
    home.contact("ann@example.org")
    assert list(store.find_by_words(home.account_id, "ann", page_number=10**30).rows) == []
    with pytest.raises(Invalid):
        store.fetch_page(home.account_id, validation.read(ContactQuery, {"list_id": str(10**30)}, loose=True))


def test_o1_schemas_have_plain_names(home: Home) -> None:
    """No schema of the OpenAPI document has a Python module in its name."""
    assert [name for name in openapi.build_document()["components"]["schemas"] if "." in name] == []
