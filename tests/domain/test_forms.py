"""Sign-up forms at the domain level: rate limits, what a stranger can change, and how long data is kept."""

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
from appliance.sending.messages import links, message_source
from appliance.storage import transactions
from appliance.storage.database import rows, run
from appliance.storage.models import Confirmation, Form, Message
from appliance.tracking import unsubscribes
from tests.domain.home import Home
from tests.domain.test_delivery_reports import send_campaign

ANA = "ana@example.org"
_clients = count(1)


@pytest.fixture(autouse=True)
def clear_counts() -> None:
    """Forget the submissions of earlier tests, which the process counts by mailbox."""
    store._attempt_times.clear()


def create_form(home: Home, **body: object) -> Form:
    """Create a form."""
    return transactions.write(store.create, home.account_id, validation.read(store.FormWrite, {"name": "F", **body}))


def submit(home: Home, form: Form, ip: str | None = None, **raw: object) -> None:
    """Submit a form, each time as another client, because rate limits are global to the process."""
    ip = ip or f"198.18.{next(_clients)}.7"
    transactions.write(submissions.accept_submission, form, submissions.parse_submission(form, raw), ip, "Browser")


def confirmation_token(number: int) -> str:
    """Return the token of a confirmation."""
    return links.build_confirmation_url("", number).rpartition("/")[2]


def test_a_rate_limit_counts_within_a_minute(home: Home) -> None:
    """The eleventh request waits until the first is a minute old; other names are not limited."""
    for _ in range(10):
        store.check_rate("form recipient:x", 10)
        home.advance(1)
    with pytest.raises(RateLimitExceeded) as error_info:
        store.check_rate("form recipient:x", 10)
    assert 45 <= error_info.value.retry_after <= 51
    store.check_rate("form recipient:y", 10)
    home.advance(51)
    store.check_rate("form recipient:x", 10)


def test_a_clock_step_back_resets_rate_limits(home: Home) -> None:
    """Submissions counted in the future are forgotten."""
    home.advance(86_400)
    for _ in range(3):
        store.count_attempt("back", 3, store.MINUTE_MS)
    home.advance(-86_400)
    assert store.count_attempt("back", 3, store.MINUTE_MS) == 0


def test_an_unanswered_confirmation_expires(home: Home) -> None:
    """After a week its personal data is deleted and its link says expired; after a month it is gone."""
    form = create_form(home)
    submit(home, form, email=ANA, first_name="Ana")
    (confirmation,) = Confirmation.select()
    home.advance(7 * 86_400 + 1)
    housekeeping.delete_expired(threading.Event())
    expired = Confirmation.get_by_id(confirmation.id)
    assert (expired.value, expired.key, expired.person, expired.ip, expired.user_agent) == (None, None, {}, None, None)
    page = confirmations.load_page(confirmation_token(confirmation.id))
    assert page is not None and page.state == "expired"
    home.advance(24 * 86_400)
    housekeeping.delete_expired(threading.Event())
    assert confirmations.load_page(confirmation_token(confirmation.id)) is None


def test_erasure_clears_open_confirmations(home: Home) -> None:
    """An open confirmation loses the contact's data and cannot be confirmed."""
    from appliance.audience.contacts import removal

    contact = home.contact(ANA)
    form = create_form(home)
    submit(home, form, email=ANA, first_name="Canary")
    transactions.write(removal.erase, home.account_id, contact.id, Evidence("api", "key:1"))
    (confirmation,) = Confirmation.select()
    assert (confirmation.value, confirmation.key, confirmation.person) == (None, None, {})
    assert transactions.write(confirmations.confirm, confirmation_token(confirmation.id), None, None, None) == "expired"
    assert rows("SELECT count(*) FROM contact") == [(0,)]


@pytest.mark.parametrize("reason", ["complaint", "erased"])
def test_confirmations_reach_complained_and_erased_addresses(reason: str, home: Home) -> None:
    """A complaint or erasure blocks all other messages; a bounce blocks the confirmation too."""
    from appliance.sending.messages import queue
    from appliance.sending.messages.ledger import COLUMNS, LedgerRow

    home.contact(ANA)
    home.suppress(ANA, reason)
    submit(home, create_form(home), email=ANA)
    (number,) = (confirmation.message_id for confirmation in Confirmation.select())
    row = LedgerRow._make(rows(f"SELECT {COLUMNS} FROM message WHERE id = ?", (number,))[0])
    assert queue.get_refusal(row) is None
    assert queue.get_refusal(row._replace(id=number + 1)) == f"suppressed_{reason}"
    home.suppress(ANA, "hard_bounce")
    assert queue.get_refusal(row) == "suppressed_hard_bounce"
    transactions.write(confirmations.confirm, confirmation_token(1), None, None, None)
    assert consent.find_channel_suppression(home.channel(ANA)) == "hard_bounce"


def test_a_confirmation_from_an_unverified_sender_is_skipped(home: Home) -> None:
    """The message is skipped with reason `sender_not_ready`; with the capture transport it is queued."""
    home.configure(email__transport="relay", email__relay__host="127.0.0.1")
    submit(home, create_form(home), email=ANA)
    (message,) = Message.select()
    assert (message.status, message.skip_reason) == ("skipped", "sender_not_ready")

    home.configure()
    submit(home, create_form(home), email=ANA)
    assert [message_row.status for message_row in Message.select().order_by(Message.id)] == ["skipped", "queued"]


def test_an_erasure_request_without_mail_is_noted(home: Home) -> None:
    """If no confirmation can be sent, the request returns `noted`."""
    _, [message_id] = send_campaign(home)
    home.configure(email__transport="relay", email__relay__host="127.0.0.1")
    token = crypto.sign_token(links.PREFERENCES, message_id)
    results = [
        transactions.write(unsubscribes.request_erasure, token, Evidence("preferences", "recipient")) for _ in range(2)
    ]
    assert results == ["noted", "noted"]


def test_accounts_send_separate_confirmations(home: Home) -> None:
    """Each account sends its own confirmation to the same address."""
    other_account = transactions.write(lambda: accounts.create("Other").id)
    forms = [
        create_form(home),
        transactions.write(store.create, other_account, validation.read(store.FormWrite, {"name": "F"})),
    ]
    for form in forms:
        for _ in range(2):
            submit(home, form, email=ANA)
    assert [message.account_id for message in Message.select().order_by(Message.id)] == [home.account_id, other_account]


def test_a_submission_to_a_deleted_form_is_dropped(home: Home) -> None:
    """No confirmation is stored and no error is raised."""
    form = create_form(home)
    transactions.write(store.delete, home.account_id, form.id)
    submit(home, form, email=ANA)
    assert rows("SELECT count(*) FROM confirmation") == [(0,)]


def test_a_form_cannot_subscribe_to_a_mirror_list(home: Home) -> None:
    """A mirror in `list_ids` is rejected."""
    from appliance.audience import lists
    from appliance.audience.segments import store as segments
    from appliance.audience.segments.store import SegmentCreate

    segment = transactions.write(
        segments.create, home.account_id, validation.read(SegmentCreate, {"name": "S", "filters": []})
    )
    mirror = transactions.write(lists.create, home.account_id, lists.ListCreate(name="M", segment_id=segment.id))
    with pytest.raises(Invalid) as error_info:
        create_form(home, list_ids=[mirror.id])
    assert error_info.value.fields == {"list_ids": ["is a view of a segment"]}


@pytest.mark.parametrize(
    ("raw", "data"),
    [
        ({"data": {"city": " Bath "}}, {"city": "Bath"}), ({"data.city": "Bath"}, {"city": "Bath"}),
        ({"data[city]": "Bath"}, {"city": "Bath"}), ({"city": "Bath"}, {"city": "Bath"}),
        ({"data": {"city": 7, "other": 1}}, {"city": 7}), ({"data": {"city": {"a": 1}}}, {}),
        ({"data": {"city": ["x"]}}, {}), ({"data": "x"}, {}), ({"data": {"city": float("inf")}}, {}), ({}, {}),
    ],
)  # fmt: skip
def test_only_fields_of_the_form_are_accepted(raw: dict[str, object], data: dict[str, object], home: Home) -> None:
    """`data` has the form's fields in any notation, and no other field or type."""
    submission = submissions.parse_submission(create_form(home, fields=["email", "data.city"]), {"email": ANA, **raw})
    assert submission.data == data and submission.address == Address("email", ANA, ANA)


@pytest.mark.parametrize("value", ["\ud800", "x" * 70_000])
def test_text_that_cannot_be_stored_is_an_error_of_its_field(value: str, home: Home) -> None:
    """Text that is not valid Unicode, or too long, is named with its field."""
    with pytest.raises(Invalid) as error_info:
        submissions.parse_submission(create_form(home, fields=["email", "data.city"]), {"email": ANA, "city": value})
    assert list(error_info.value.fields) == ["data.city"]


def test_a_form_with_email_and_phone_needs_one_of_them(home: Home) -> None:
    """A form with a phone field only requires the phone."""
    both_form, phone_form = create_form(home, fields=["email", "phone"]), create_form(home, fields=["phone"])
    assert submissions.parse_submission(both_form, {"phone": "+44 20 7946 0018"}).address.key == "+442079460018"
    submission = submissions.parse_submission(both_form, {"phone": "+442079460018", "email": ANA})
    assert submission.address.key == ANA and submission.phone is not None and submission.phone.key == "+442079460018"
    with pytest.raises(Invalid) as error_info:
        submissions.parse_submission(phone_form, {"email": ANA})
    assert error_info.value.fields == {"phone": ["can't be blank"]}


def test_a_national_number_uses_the_accounts_country(home: Home) -> None:
    """National numbers need a country of the account; `00` and a trunk zero in brackets are always parsed."""
    form = create_form(home, fields=["phone"])
    assert submissions.parse_submission(form, {"phone": "0044 (0)20 7946 0018"}).address.key == "+442079460018"
    with pytest.raises(Invalid) as error_info:
        submissions.parse_submission(form, {"phone": "07700 900003"})
    assert error_info.value.fields == {"phone": ["is invalid"]}
    transactions.write(accounts.update, home.account_id, accounts.AccountWrite(country_code="GB"))
    assert submissions.parse_submission(form, {"phone": "020 7946 0018"}).address.key == "+442079460018"
    # Too short for a mobile number, although numbers of other kinds are as short
    with pytest.raises(Invalid) as error_info:
        submissions.parse_submission(form, {"phone": "0790 1234"})
    assert error_info.value.fields == {"phone": ["is invalid"]}
    assert submissions.parse_submission(form, {"phone": "+44 790 1234"}).address.key == "+447901234"


def test_a_phone_without_confirmation_is_not_subscribed(home: Home) -> None:
    """With double opt-in a phone number is stored but not subscribed; without it it is subscribed."""
    submit(home, create_form(home, fields=["phone"]), phone="+442079460018")
    channel = home.channel("+442079460018")
    assert not channel.subscribed and channel.verified_at is None
    submit(home, create_form(home, fields=["phone"], double_opt_in=False), phone="+442079460019")
    assert home.channel("+442079460019").subscribed


def test_repeated_submissions_replace_unmailed_confirmations(home: Home) -> None:
    """Confirmations not yet mailed are replaced, so that confirming leaves none open."""
    forms = [create_form(home), create_form(home)]
    for number in range(20):
        submit(home, forms[number % 2], email=ANA, first_name=f"Ana {number}")
        home.advance(6 * 3600)
    waiting = list(Confirmation.select().order_by(Confirmation.id))
    mailed = [confirmation for confirmation in waiting if confirmation.mailed_at is not None]

    assert len(mailed) == Message.select().count() == 5 and len(waiting) <= len(mailed) + len(forms)
    assert all(
        confirmation.person["names"]["first_name"] == "Ana 18"
        for confirmation in waiting
        if confirmation.mailed_at is None and confirmation.form_id == forms[0].id
    )
    assert transactions.write(confirmations.confirm, confirmation_token(mailed[-1].id), None, None, None) == "done"
    assert not [confirmation for confirmation in Confirmation.select() if confirmation.confirmed_at is None]


def test_a_confirmation_names_no_internal_list(home: Home) -> None:
    """The email that asks for confirmation names the title of the form if its list is not public, else the list."""
    inner, public = home.list_of(name="Stammkunden"), home.list_of(name="Brotbrief")
    transactions.write(run, "UPDATE contact_list SET public = 1 WHERE id = ?", (public.id,))
    cases = (([inner.id], None, "Anmeldung"), ([inner.id], "Backpost", "Backpost"),
             ([inner.id, public.id], "Backpost", "Brotbrief"))  # fmt: skip
    for number, (list_ids, title, named) in enumerate(cases):
        form = create_form(home, name="Anmeldung", title=title, list_ids=list_ids, double_opt_in=True)
        submit(home, form, email=f"p{number}@example.org")
        message = Message.select().order_by(Message.id.desc()).get()
        text = message_source.get_html(home.account_id, message.id)
        assert f"You will be subscribed to: {named}." in text
        assert "Stammkunden" not in text


def test_a_confirmation_keeps_the_consent_text_of_its_time(home: Home) -> None:
    """Later edits of the form do not change the text in the evidence; the IP address is truncated."""
    form = create_form(home, consent_text="Old words")
    submit(home, form, "203.0.113.9", email=ANA)
    transactions.write(
        store.update, home.account_id, form.id, msgspec.convert({"consent_text": "New"}, store.FormPatch)
    )
    (confirmation,) = Confirmation.select()
    assert (confirmation.text, confirmation.ip, confirmation.created_at <= clock.now_ms()) == (
        "Old words",
        "203.0.113.0",
        True,
    )
    text = rows("SELECT text, ip, actor FROM consent WHERE act = 'requested'")
    assert text == [("Old words", "203.0.113.0", f"form:{form.id}")]
