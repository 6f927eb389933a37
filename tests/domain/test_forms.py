"""Forms below the doors: rates, what a stranger may touch, and what is kept of it for how long."""

import threading
from itertools import count

import msgspec
import pytest

from appliance.accounts import accounts
from appliance.audience import consent
from appliance.audience.consent import Evidence
from appliance.core import clock, crypto, validation
from appliance.core.addresses import Address
from appliance.core.errors import Invalid, RateLimitExceeded
from appliance.forms import confirmations, store, submissions
from appliance.jobs import housekeeping
from appliance.sending.messages import links
from appliance.storage import transactions
from appliance.storage.database import rows
from appliance.storage.models import Confirmation, Form, Message
from appliance.tracking import erasing
from tests.domain.home import Home
from tests.domain.test_feedback import sent

ANA = "ana@example.org"
_clients = count(1)


def form_of(home: Home, **body: object) -> Form:
    """Make a form."""
    return transactions.write(store.create, home.account_id, validation.read(store.FormWrite, {"name": "F", **body}))


def submit(home: Home, form: Form, ip: str | None = None, **raw: object) -> None:
    """Submit it, each time as another client: rates are the process's."""
    ip = ip or f"198.18.{next(_clients)}.7"
    transactions.write(submissions.accept_submission, form, submissions.parse_submission(form, raw), ip, "Browser")


def token_of(number: int) -> str:
    """Return the token of a confirmation."""
    return links.build_confirmation_url(number).rpartition("/")[2]


def test_a_rate_counts_in_a_window(home: Home) -> None:
    """So many in a minute under one name; the next one waits until the first is a minute ago, other names do not."""
    for _ in range(10):
        store.check_rate("form recipient:x", 10)
        home.advance(1)
    with pytest.raises(RateLimitExceeded) as refused:
        store.check_rate("form recipient:x", 10)
    assert 45 <= refused.value.retry_after <= 51
    store.check_rate("form recipient:y", 10)
    home.advance(51)
    store.check_rate("form recipient:x", 10)


def test_a_clock_that_steps_back_locks_nobody_out(home: Home) -> None:
    """What was counted in the future is forgotten."""
    home.advance(86_400)
    for _ in range(3):
        store.count_submission("back", 3, store.MINUTE_MS)
    home.advance(-86_400)
    assert store.count_submission("back", 3, store.MINUTE_MS) == 0


def test_what_was_typed_is_kept_a_week_and_that_it_was_a_month(home: Home) -> None:
    """An answer that never came leaves nothing of the person; its link says that it is too late, then nothing."""
    form = form_of(home)
    submit(home, form, email=ANA, first_name="Ana")
    (asked,) = Confirmation.select()
    home.advance(7 * 86_400 + 1)
    housekeeping.delete_expired(threading.Event())
    kept = Confirmation.get_by_id(asked.id)
    assert (kept.value, kept.key, kept.person, kept.ip, kept.user_agent) == (None, None, {}, None, None)
    found = confirmations.load_page(token_of(asked.id))
    assert found is not None and found.state == "expired"
    home.advance(24 * 86_400)
    housekeeping.delete_expired(threading.Event())
    assert confirmations.load_page(token_of(asked.id)) is None


def test_erasing_a_person_takes_what_was_typed_in_their_name(home: Home) -> None:
    """A question that is still open says nothing of them any more, and cannot be answered."""
    from appliance.audience.contacts import removal

    person = home.contact(ANA)
    form = form_of(home)
    submit(home, form, email=ANA, first_name="Canary")
    transactions.write(removal.erase, home.account_id, person.id, Evidence("api", "key:1"))
    (asked,) = Confirmation.select()
    assert (asked.value, asked.key, asked.person) == (None, None, {})
    assert transactions.write(confirmations.confirm, token_of(asked.id), None, None, None) == "expired"
    assert rows("SELECT count(*) FROM contact") == [(0,)]


@pytest.mark.parametrize("reason", ["complaint", "erased"])
def test_only_the_question_reaches_who_may_not_be_written_to(reason: str, home: Home) -> None:
    """A complaint or an erasure keeps all other mail away, the service's own included; a bounce keeps this away too."""
    from appliance.sending.messages import queue
    from appliance.sending.messages.ledger import COLUMNS, Claim

    home.contact(ANA)
    home.suppress(ANA, reason)
    submit(home, form_of(home), email=ANA)
    (number,) = (one.message_id for one in Confirmation.select())
    row = Claim._make(rows(f"SELECT {COLUMNS} FROM message WHERE id = ?", (number,))[0])
    assert queue.get_refusal(row) is None
    assert queue.get_refusal(row._replace(id=number + 1)) == f"suppressed_{reason}"
    home.suppress(ANA, "hard_bounce")
    assert queue.get_refusal(row) == "suppressed_hard_bounce"
    transactions.write(confirmations.confirm, token_of(1), None, None, None)
    assert consent.find_channel_suppression(home.channel(ANA)) == "hard_bounce"


def test_a_mail_that_may_not_leave_is_kept_as_skipped(home: Home) -> None:
    """On a real transport a sender that is not verified asks nobody; the row says why."""
    home.configure(email__transport="relay", email__relay__host="127.0.0.1")
    submit(home, form_of(home), email=ANA)
    (message,) = Message.select()
    assert (message.status, message.skip_reason) == ("skipped", "sender_not_ready")

    home.configure()
    submit(home, form_of(home), email=ANA)
    assert [one.status for one in Message.select().order_by(Message.id)] == ["skipped", "queued"]


def test_nobody_is_told_of_a_mail_that_may_not_leave(home: Home) -> None:
    """Who wants to be erased is told that it was noted, not that a mail is on its way to them."""
    _, [first] = sent(home)
    home.configure(email__transport="relay", email__relay__host="127.0.0.1")
    token = crypto.sign_token(links.PREFERENCES, first)
    asked = [transactions.write(erasing.request_erasure, token, Evidence("preferences", "recipient")) for _ in range(2)]
    assert asked == ["noted", "noted"]


def test_each_account_asks_for_itself(home: Home) -> None:
    """Two that have the same address know nothing of each other: what one has asked today is no answer to the other."""
    other = transactions.write(lambda: accounts.create("Other").id)
    forms = [form_of(home), transactions.write(store.create, other, validation.read(store.FormWrite, {"name": "F"}))]
    for form in forms:
        for _ in range(2):
            submit(home, form, email=ANA)
    assert [one.account_id for one in Message.select().order_by(Message.id)] == [home.account_id, other]


def test_a_form_that_is_deleted_meanwhile_takes_nothing(home: Home) -> None:
    """What was on its way is dropped, and nobody is told another thing."""
    form = form_of(home)
    transactions.write(store.delete, home.account_id, form.id)
    submit(home, form, email=ANA)
    assert rows("SELECT count(*) FROM confirmation") == [(0,)]


def test_a_view_of_a_segment_takes_nobody(home: Home) -> None:
    """Such a list cannot be joined, so no form leads to it."""
    from appliance.audience import lists
    from appliance.audience.segments import store as segments
    from appliance.audience.segments.store import SegmentCreate

    segment = transactions.write(
        segments.create, home.account_id, validation.read(SegmentCreate, {"name": "S", "filters": []})
    )
    mirror = transactions.write(lists.create, home.account_id, lists.ListCreate(name="M", segment_id=segment.id))
    with pytest.raises(Invalid) as refused:
        form_of(home, list_ids=[mirror.id])
    assert refused.value.fields == {"list_ids": ["is a view of a segment"]}


@pytest.mark.parametrize(
    ("raw", "data"),
    [
        ({"data": {"city": " Bath "}}, {"city": "Bath"}), ({"data.city": "Bath"}, {"city": "Bath"}),
        ({"data[city]": "Bath"}, {"city": "Bath"}), ({"city": "Bath"}, {"city": "Bath"}),
        ({"data": {"city": 7, "other": 1}}, {"city": 7}), ({"data": {"city": {"a": 1}}}, {}),
        ({"data": {"city": ["x"]}}, {}), ({"data": "x"}, {}), ({"data": {"city": float("inf")}}, {}), ({}, {}),
    ],
)  # fmt: skip
def test_only_what_a_form_asks_for_is_taken(raw: dict[str, object], data: dict[str, object], home: Home) -> None:
    """However it is written, `data` holds the fields of the form and nothing else."""
    said = submissions.parse_submission(form_of(home, fields=["email", "data.city"]), {"email": ANA, **raw})
    assert said.data == data and said.address == Address("email", ANA, ANA)


def test_one_of_two_addresses_is_enough(home: Home) -> None:
    """A form that asks for both takes either; one that asks for a number alone insists on it."""
    both, phone = form_of(home, fields=["email", "phone"]), form_of(home, fields=["phone"])
    assert submissions.parse_submission(both, {"phone": "+44 20 7946 0018"}).address.key == "+442079460018"
    said = submissions.parse_submission(both, {"phone": "+442079460018", "email": ANA})
    assert said.address.key == ANA and said.phone is not None and said.phone.key == "+442079460018"
    with pytest.raises(Invalid) as refused:
        submissions.parse_submission(phone, {"email": ANA})
    assert refused.value.fields == {"phone": ["can't be blank"]}


def test_a_number_without_country_code_is_one_of_the_country_of_the_account(home: Home) -> None:
    """Only where the account names one; `00` and a trunk zero in brackets are understood everywhere."""
    form = form_of(home, fields=["phone"])
    assert submissions.parse_submission(form, {"phone": "0044 (0)20 7946 0018"}).address.key == "+442079460018"
    with pytest.raises(Invalid) as refused:
        submissions.parse_submission(form, {"phone": "07700 900003"})
    assert refused.value.fields == {"phone": ["is invalid"]}
    transactions.write(accounts.update, home.account_id, accounts.AccountWrite(country_code="GB"))
    assert submissions.parse_submission(form, {"phone": "07700 900003"}).address.key == "+447700900003"


def test_a_number_that_nobody_can_ask_is_not_written_to(home: Home) -> None:
    """Without a way to confirm it a phone number is kept, and has agreed to nothing."""
    submit(home, form_of(home, fields=["phone"]), phone="+442079460018")
    channel = home.channel("+442079460018")
    assert not channel.subscribed and channel.verified_at is None
    submit(home, form_of(home, fields=["phone"], double_opt_in=False), phone="+442079460019")
    assert home.channel("+442079460019").subscribed


def test_a_form_submitted_without_end_leaves_little_to_confirm(home: Home) -> None:
    """What was typed again, and was in no mail, is replaced: a link does not do at once what a week of robots left."""
    forms = [form_of(home), form_of(home)]
    for number in range(20):
        submit(home, forms[number % 2], email=ANA, first_name=f"Ana {number}")
        home.advance(6 * 3600)
    waiting = list(Confirmation.select().order_by(Confirmation.id))
    mailed = [one for one in waiting if one.mailed_at is not None]

    assert len(mailed) == Message.select().count() == 5 and len(waiting) <= len(mailed) + len(forms)
    assert all(one.person["names"]["first_name"] == "Ana 18" for one in waiting if one.mailed_at is None
               and one.form_id == forms[0].id)  # fmt: skip
    assert transactions.write(confirmations.confirm, token_of(mailed[-1].id), None, None, None) == "done"
    assert not [one for one in Confirmation.select() if one.confirmed_at is None]


def test_a_question_is_answered_as_it_was_put(home: Home) -> None:
    """What the evidence keeps of a form is its text at that moment, and where it came from only as far as allowed."""
    form = form_of(home, consent_text="Old words")
    submit(home, form, "203.0.113.9", email=ANA)
    transactions.write(
        store.update, home.account_id, form.id, msgspec.convert({"consent_text": "New"}, store.FormPatch)
    )
    (asked,) = Confirmation.select()
    assert (asked.text, asked.ip, asked.created_at <= clock.now_ms()) == ("Old words", "203.0.113.0", True)
    text = rows("SELECT text, ip, actor FROM consent WHERE act = 'requested'")
    assert text == [("Old words", "203.0.113.0", f"form:{form.id}")]
