"""Who lifts a suppression: imports, the person, an operator, time (docs/decisions.md#9)."""

import pytest

from appliance.audience import consent, suppressions
from appliance.audience.consent import Evidence
from appliance.audience.suppressions import SuppressionCause
from appliance.core.addresses import Address
from appliance.core.errors import Invalid
from appliance.storage import transactions
from appliance.storage.database import rows
from appliance.storage.models import Channel
from tests.domain.home import Home
from tests.domain.test_consent import ADDRESS, IN, STATES, State, reach, state

BY_PERSON = Evidence(source="form", actor="recipient", text="I want the news")
IMPORTED = Evidence(source="import", actor="key:1")
OPERATOR = Evidence(source="ui", actor="user:1")
PHONE = "+14155550123"


def add(home: Home, address: str, reason: str, expires_at: int | None = None) -> int:
    """Suppress an address and answer the row's id."""
    kind = "email" if "@" in address else "phone"
    asked = Address(kind, address, address)
    case = SuppressionCause(reason, "test", "550 no", "note", expires_at)
    return transactions.write(suppressions.suppress, home.account_id, asked, case, OPERATOR)[0]


def number_of(home: Home, reason: str) -> int:
    """Return the id of the only suppression of a reason."""
    return int(rows("SELECT id FROM suppression WHERE account_id = ? AND reason = ?", (home.account_id, reason))[0][0])


# (import without opt_in, import with it, double opt-in confirmed, own preference page)
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
    "import": lambda channel: consent.apply_import_choice(channel, False, IMPORTED),
    "import opt_in": lambda channel: consent.apply_import_choice(channel, True, IMPORTED),
    "confirmed": lambda channel: consent.confirm_opt_in(channel, BY_PERSON),
    "preference page": lambda channel: consent.opt_in_by_recipient(channel, BY_PERSON),
}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("before", STATES)
def test_who_lifts_what(before: str, act: str, home: Home) -> None:
    """Each act leaves each state exactly as the table says."""
    reach(home, STATES[before])
    transactions.write(lambda: ACTS[act](home.channel(ADDRESS)))
    assert state(home.channel(ADDRESS)) == CELLS[before][list(ACTS).index(act)]
    if act == "confirmed":
        assert home.channel(ADDRESS).verified_at is not None
        assert home.acts(ADDRESS)[-1][:2] in (("opt_in", "recipient"), ("confirmed", "recipient"))


@pytest.mark.parametrize("known", [True, False], ids=["a contact", "nobody"])
@pytest.mark.parametrize("reason", ["hard_bounce", "soft_bounce", "manual", "complaint", "erased"])
def test_an_operator_lifts_with_a_reason(reason: str, known: bool, home: Home) -> None:
    """Bounce and manual go whole; of complaint and erasure the opt-out stays, and an address alone does not lift it."""
    if known:
        home.contact(ADDRESS)
    add(home, ADDRESS, reason)
    if known:
        assert home.channel(ADDRESS).suppression == reason
    with pytest.raises(Invalid):
        transactions.write(suppressions.lift, home.account_id, number_of(home, reason), " ", OPERATOR)
    transactions.write(suppressions.lift, home.account_id, number_of(home, reason), "they called", OPERATOR)
    home.upsert(email=ADDRESS)
    out = reason in ("complaint", "erased")
    assert state(home.channel(ADDRESS)) == (STATES["recipient"] if out else IN)
    home.upsert(email=ADDRESS, opt_in=True)
    assert state(home.channel(ADDRESS)) == IN
    assert ("lifted", "operator", "ui", "user:1") in home.acts(ADDRESS)


def test_an_erased_address_that_came_back_is_found_by_its_hash(home: Home) -> None:
    """An erased record has no address; lifting it still reaches the channel that has come back."""
    add(home, ADDRESS, "erased")
    home.upsert(email=ADDRESS)
    home.upsert(email="other@example.org")
    add(home, "other@example.org", "manual")
    assert home.channel(ADDRESS).suppression == "erased"
    lifted = transactions.write(suppressions.lift, home.account_id, number_of(home, "erased"), "asked", OPERATOR)
    assert lifted.address is None
    assert (home.channel(ADDRESS).suppression, home.channel("other@example.org").suppression) == (None, "manual")


def test_a_stop_comes_and_goes_with_its_opt_out(home: Home) -> None:
    """A STOP suppresses and opts out; no operator lifts it alone; a START or an explicit opt-in lifts both."""
    home.upsert(phone=PHONE)
    for lifting in (
        lambda: transactions.write(lambda: consent.opt_in_by_recipient(home.channel(PHONE), BY_PERSON)),
        lambda: home.upsert(phone=PHONE, opt_in=True),
    ):
        add(home, PHONE, "stop_keyword")
        assert state(home.channel(PHONE)) == State(False, "recipient", "stop_keyword")
        with pytest.raises(Invalid):
            transactions.write(suppressions.lift, home.account_id, number_of(home, "stop_keyword"), "please", OPERATOR)
        assert home.upsert(phone=PHONE).kept_opt_out == [PHONE]
        lifting()
        assert state(home.channel(PHONE)) == IN
        assert rows("SELECT * FROM suppression") == []


def test_the_gravest_of_several_is_shown(home: Home) -> None:
    """Whatever the order in which they come and go, the channel names the gravest in force."""
    home.contact(ADDRESS)
    for reason in ("soft_bounce", "hard_bounce", "manual"):
        add(home, ADDRESS, reason)
    shown = [home.channel(ADDRESS).suppression]
    for reason in ("hard_bounce", "manual", "soft_bounce"):
        transactions.write(suppressions.lift, home.account_id, number_of(home, reason), "x", OPERATOR)
        shown.append(home.channel(ADDRESS).suppression)
    assert shown == ["hard_bounce", "manual", "soft_bounce", None]


def test_time_lifts_only_what_may_expire(home: Home) -> None:
    """A manual suppression with an end is over at its end, for reading at once and for the row at the next pulse."""
    from appliance.core import clock

    home.contact(ADDRESS)
    add(home, ADDRESS, "manual", clock.now_ms() + 60_000)
    assert not suppressions.has_expired() and home.channel(ADDRESS).suppression == "manual"
    home.advance(61)
    assert (
        suppressions.has_expired()
        and suppressions.fetch_page(home.account_id, suppressions.SuppressionQuery()).total == 0
    )
    assert transactions.write(suppressions.expire) == 1 and not suppressions.has_expired()
    assert home.channel(ADDRESS).suppression is None
    assert home.acts(ADDRESS)[-1] == ("lifted", "service", "expiry", "service")
    add(home, ADDRESS, "manual", clock.now_ms() + 60_000)
    home.advance(61)
    again = add(home, ADDRESS, "manual")
    assert Channel.get(Channel.key == ADDRESS).suppression == "manual"
    assert suppressions.get(home.account_id, again).expires_at is None and not suppressions.has_expired()
