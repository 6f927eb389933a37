"""Who lifts a suppression: imports, the recipient, an operator, or time (docs/decisions.md#9)."""

import pytest

from appliance.audience import consent, suppressions
from appliance.audience.consent import Evidence
from appliance.audience.contacts import removal, statuses, store
from appliance.audience.contacts.store import ContactQuery
from appliance.audience.suppressions import SuppressionCause
from appliance.core import validation
from appliance.core.addresses import Address
from appliance.core.errors import Invalid
from appliance.imports.job import Importer
from appliance.storage import transactions
from appliance.storage.database import rows
from appliance.storage.models import Channel
from tests.domain.home import Home
from tests.domain.test_consent import ADDRESS, IN, STATES, State, bring_into_state, state
from tests.domain.test_importing_rules import create_import

BY_PERSON = Evidence(source="form", actor="recipient", text="I want the news")
OPERATOR = Evidence(source="ui", actor="user:1")
PHONE = "+14155550123"


def suppress(home: Home, address: str, reason: str, expires_at: int | None = None) -> int:
    """Suppress an address and return the suppression's id."""
    kind = "email" if "@" in address else "phone"
    parsed = Address(kind, address, address)
    cause = SuppressionCause(reason, "test", "550 no", "note", expires_at)
    return transactions.write(suppressions.suppress, home.account_id, parsed, cause, OPERATOR)[0]


def get_suppression_id(home: Home, reason: str) -> int:
    """Return the id of the only suppression with a reason."""
    return int(rows("SELECT id FROM suppression WHERE account_id = ? AND reason = ?", (home.account_id, reason))[0][0])


# Results of: import without opt_in, import with it, double opt-in confirmed, preferences page
KEPT = {name: STATES[name] for name in STATES}
CELLS: dict[str, tuple[State, State, State, State]] = {
    "subscribed": (IN, IN, IN, IN),
    "operator": (KEPT["operator"], IN, IN, IN),
    "recipient": (KEPT["recipient"], KEPT["recipient"], IN, IN),
    "complaint": (KEPT["complaint"], KEPT["complaint"], IN, KEPT["complaint"]),
    "erased": (KEPT["erased"], KEPT["erased"], IN, KEPT["erased"]),
    "hard_bounce": (KEPT["hard_bounce"],) * 4,
    "soft_bounce": (KEPT["soft_bounce"],) * 4,
    "manual": (KEPT["manual"],) * 4,
    "operator + hard_bounce": (KEPT["operator + hard_bounce"],) + (KEPT["hard_bounce"],) * 3,
    "recipient + manual": (KEPT["recipient + manual"],) * 2 + (KEPT["manual"],) * 2,
    "recipient + soft_bounce": (KEPT["recipient + soft_bounce"],) * 2 + (KEPT["soft_bounce"],) * 2,
    "operator + complaint": (KEPT["operator + complaint"],) * 2 + (IN, KEPT["operator + complaint"]),
}
ACTS = {
    "import": None,
    "import opt_in": None,
    "confirmed": lambda channel: consent.confirm_opt_in(channel, BY_PERSON),
    "preference page": lambda channel: consent.opt_in_by_recipient(channel, BY_PERSON),
}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("state_before", STATES)
def test_acts_that_lift_suppressions(state_before: str, act: str, home: Home) -> None:
    """Each act changes each state as the table says."""
    bring_into_state(home, STATES[state_before])
    if (lift := ACTS[act]) is not None:
        transactions.write(lambda: lift(home.channel(ADDRESS)))
    else:
        create_import(home, f"email\n{ADDRESS}\n", opt_in=act == "import opt_in")
        Importer().run()
    assert state(home.channel(ADDRESS)) == CELLS[state_before][list(ACTS).index(act)]
    if act == "confirmed":
        assert home.channel(ADDRESS).verified_at is not None
        assert home.consent_rows(ADDRESS)[-1][:2] in (("opt_in", "recipient"), ("confirmed", "recipient"))


@pytest.mark.parametrize("is_contact", [True, False], ids=["a contact", "nobody"])
@pytest.mark.parametrize("reason", ["hard_bounce", "soft_bounce", "manual", "complaint", "erased"])
def test_an_operator_needs_a_reason_to_lift(reason: str, is_contact: bool, home: Home) -> None:
    """Bounces and manual suppressions are lifted completely; after a complaint or erasure the opt-out stays."""
    if is_contact:
        home.contact(ADDRESS)
    suppress(home, ADDRESS, reason)
    if is_contact:
        assert home.channel(ADDRESS).suppression == reason
    with pytest.raises(Invalid):
        transactions.write(suppressions.lift, home.account_id, get_suppression_id(home, reason), " ", OPERATOR)
    transactions.write(suppressions.lift, home.account_id, get_suppression_id(home, reason), "they called", OPERATOR)
    home.upsert(email=ADDRESS)
    stays_out = reason in ("complaint", "erased")
    assert state(home.channel(ADDRESS)) == (STATES["recipient"] if stays_out else IN)
    home.upsert(email=ADDRESS, opt_in=True)
    assert state(home.channel(ADDRESS)) == IN
    assert ("lifted", "operator", "ui", "user:1") in home.consent_rows(ADDRESS)


def test_lifting_an_erasure_finds_the_address_by_hash(home: Home) -> None:
    """The suppression of an erased address has no address; lifting it reaches the channel created since."""
    suppress(home, ADDRESS, "erased")
    home.upsert(email=ADDRESS)
    home.upsert(email="other@example.org")
    suppress(home, "other@example.org", "manual")
    assert home.channel(ADDRESS).suppression == "erased"
    lifted = transactions.write(
        suppressions.lift, home.account_id, get_suppression_id(home, "erased"), "asked", OPERATOR
    )
    assert lifted.address is None
    assert (home.channel(ADDRESS).suppression, home.channel("other@example.org").suppression) == (None, "manual")


def test_a_stop_is_lifted_with_its_opt_out(home: Home) -> None:
    """No operator can lift a STOP alone; an opt-in of the recipient or an explicit one lifts both."""
    home.upsert(phone=PHONE)
    for lift in (
        lambda: transactions.write(lambda: consent.opt_in_by_recipient(home.channel(PHONE), BY_PERSON)),
        lambda: home.upsert(phone=PHONE, opt_in=True),
    ):
        suppress(home, PHONE, "stop_keyword")
        assert state(home.channel(PHONE)) == State(False, "recipient", "stop_keyword")
        with pytest.raises(Invalid):
            transactions.write(
                suppressions.lift, home.account_id, get_suppression_id(home, "stop_keyword"), "please", OPERATOR
            )
        assert home.upsert(phone=PHONE).kept_opt_out == [PHONE]
        lift()
        assert state(home.channel(PHONE)) == IN
        assert rows("SELECT * FROM suppression") == []


def test_the_most_serious_suppression_is_shown(home: Home) -> None:
    """Of several suppressions the channel shows the most serious one, in whatever order they are added and lifted."""
    home.contact(ADDRESS)
    for reason in ("soft_bounce", "hard_bounce", "manual"):
        suppress(home, ADDRESS, reason)
    shown_reasons = [home.channel(ADDRESS).suppression]
    for reason in ("hard_bounce", "manual", "soft_bounce"):
        transactions.write(suppressions.lift, home.account_id, get_suppression_id(home, reason), "x", OPERATOR)
        shown_reasons.append(home.channel(ADDRESS).suppression)
    assert shown_reasons == ["hard_bounce", "manual", "soft_bounce", None]


def test_expired_suppressions_are_lifted(home: Home) -> None:
    """A manual suppression is no longer listed after its end, and is then deleted; one without an end stays."""
    from appliance.core import clock

    home.contact(ADDRESS)
    suppress(home, ADDRESS, "manual", clock.now_ms() + 60_000)
    assert not suppressions.has_expired() and home.channel(ADDRESS).suppression == "manual"
    home.advance(61)
    assert (
        suppressions.has_expired()
        and suppressions.fetch_page(home.account_id, suppressions.SuppressionQuery()).total == 0
    )
    assert transactions.write(suppressions.expire) == 1 and not suppressions.has_expired()
    assert home.channel(ADDRESS).suppression is None
    assert home.consent_rows(ADDRESS)[-1] == ("lifted", "service", "expiry", "service")
    suppress(home, ADDRESS, "manual", clock.now_ms() + 60_000)
    home.advance(61)
    suppression_id = suppress(home, ADDRESS, "manual")
    assert Channel.get(Channel.key == ADDRESS).suppression == "manual"
    assert suppressions.get(home.account_id, suppression_id).expires_at is None and not suppressions.has_expired()


def test_each_contact_is_in_one_state(home: Home) -> None:
    """The state is that of the email addresses, the best one first, or of the phone numbers if there is none."""
    expected = {
        home.contact("fine@example.org", phone="+14155550120").id: "subscribed",
        home.contact("bounced@example.org", phone="+14155550121").id: "suppressed",
        home.contact("out@example.org", phone="+14155550122").id: "unsubscribed",
        home.contact("never@example.org", opt_in=False).id: "not_subscribed",
        home.contact("two@example.org", channels_attributes=[{"value": "two@work.example"}]).id: "subscribed",
        home.upsert(phone="+14155550123").contact.id: "subscribed",
        home.upsert(phone="+14155550124", opt_in=False).contact.id: "not_subscribed",
        home.upsert(first_name="No address").contact.id: "not_subscribed",
    }
    suppress(home, "bounced@example.org", "hard_bounce")
    suppress(home, "two@example.org", "hard_bounce")
    suppress(home, "+14155550120", "manual")
    home.opt_out("out@example.org")
    for status in ("subscribed", "unsubscribed", "not_subscribed", "suppressed"):
        ids = {contact_id for contact_id, state_ in expected.items() if state_ == status}
        page = store.fetch_page(home.account_id, validation.read(ContactQuery, {"status": status}))
        assert ({contact.id for contact in page.rows}, page.total) == (ids, len(ids)), status
        assert getattr(statuses.count_contacts(home.account_id), status) == len(ids)
    assert statuses.count_contacts(home.account_id).total == len(expected)


@pytest.mark.parametrize("reason", ["complaint", "erased"])
@pytest.mark.parametrize("has_contact", [False, True])
def test_a_program_cannot_lift_the_opt_out_of_a_complaint(home: Home, reason: str, has_contact: bool) -> None:
    """Not before its suppression is lifted, not after, and not after the contact was deleted."""
    contact_id = home.contact(ADDRESS).id if has_contact else None
    number = suppress(home, ADDRESS, reason)
    if contact_id is not None:
        transactions.write(removal.delete, home.account_id, contact_id)
    assert not lift_opt_out(home)
    transactions.write(suppressions.lift, home.account_id, number, "asked for it", OPERATOR)
    assert not lift_opt_out(home)

    assert home.upsert(email=ADDRESS).kept_opt_out == [ADDRESS]


def test_a_program_lifts_an_opt_out_after_a_later_opt_in(home: Home) -> None:
    """A complaint from before the person confirmed says nothing of the opt-out that followed."""
    contact_id = home.contact(ADDRESS).id
    suppress(home, ADDRESS, "complaint")
    transactions.write(lambda: consent.confirm_opt_in(home.channel(ADDRESS), BY_PERSON))
    home.opt_out(ADDRESS)
    transactions.write(removal.delete, home.account_id, contact_id)

    assert lift_opt_out(home)


def lift_opt_out(home: Home) -> bool:
    """Lift the opt-out of the address as a program with its own audience."""
    address = Address("email", ADDRESS, ADDRESS)
    return transactions.write(consent.lift_opt_out_without_contact, home.account_id, address, OPERATOR)
