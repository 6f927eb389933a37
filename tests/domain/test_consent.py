"""The consent table of docs/decisions.md#9: the effect of each action of the API on each state of an address."""

from typing import Any, NamedTuple

import pytest

from appliance.audience import consent
from appliance.audience.consent import Evidence
from appliance.audience.contacts import removal, store, timeline, write
from appliance.storage import transactions
from appliance.storage.models import Channel, Consent
from tests.domain.home import Home

ADDRESS = "ann@example.org"


class State(NamedTuple):
    """The consent and the suppression of an address."""

    subscribed: bool
    out_by: str | None = None
    suppression: str | None = None


IN = State(True)
# The states of an address before the action: the columns of the table, and combinations of two
STATES: dict[str, State] = {
    "subscribed": IN,
    "operator": State(False, "operator"),
    "recipient": State(False, "recipient"),
    "complaint": State(False, "recipient", "complaint"),
    "erased": State(False, "recipient", "erased"),
    "hard_bounce": State(True, None, "hard_bounce"),
    "soft_bounce": State(True, None, "soft_bounce"),
    "manual": State(True, None, "manual"),
    "operator + hard_bounce": State(False, "operator", "hard_bounce"),
    "recipient + manual": State(False, "recipient", "manual"),
    "recipient + soft_bounce": State(False, "recipient", "soft_bounce"),
    "operator + complaint": State(False, "operator", "complaint"),
}

# The actions, as request bodies
ADDRESS_ONLY: dict[str, dict[str, Any]] = {
    "post": {"email": ADDRESS},
    "channel": {"channels_attributes": [{"value": ADDRESS}]},
}
OPT_IN: dict[str, dict[str, Any]] = {
    "opt_in": {"email": ADDRESS, "opt_in": True},
    "channel": {"channels_attributes": [{"value": ADDRESS, "subscribed": True}]},
}
OPT_OUT: dict[str, dict[str, Any]] = {
    "opt_in": {"email": ADDRESS, "opt_in": False},
    "channel": {"channels_attributes": [{"value": ADDRESS, "subscribed": False}]},
}

# The state after each action, by the state before it: (address only, opt-in, opt-out)
OUT = State(False, "operator")
STATES_AFTER: dict[str, tuple[State, State, State]] = {
    "subscribed": (IN, IN, OUT),
    "operator": (IN, IN, STATES["operator"]),
    "recipient": (STATES["recipient"], IN, STATES["recipient"]),
    "complaint": (STATES["complaint"],) * 3,
    "erased": (STATES["erased"],) * 3,
    "hard_bounce": (STATES["hard_bounce"],) * 2 + (State(False, "operator", "hard_bounce"),),
    "soft_bounce": (STATES["soft_bounce"],) * 2 + (State(False, "operator", "soft_bounce"),),
    "manual": (STATES["manual"],) * 2 + (State(False, "operator", "manual"),),
    "operator + hard_bounce": (STATES["hard_bounce"],) * 2 + (STATES["operator + hard_bounce"],),
    "recipient + manual": (STATES["recipient + manual"], STATES["manual"], STATES["recipient + manual"]),
    "recipient + soft_bounce": (
        STATES["recipient + soft_bounce"],
        STATES["soft_bounce"],
        STATES["recipient + soft_bounce"],
    ),
    "operator + complaint": (STATES["operator + complaint"],) * 3,
}
ACTIONS = (
    [(0, ADDRESS_ONLY, name) for name in ADDRESS_ONLY]
    + [(1, OPT_IN, name) for name in OPT_IN]
    + [(2, OPT_OUT, name) for name in OPT_OUT]
)


def state(channel: Channel) -> State:
    """Return the state of a channel."""
    return State(channel.subscribed, channel.opted_out_by, channel.suppression)


def bring_into_state(home: Home, wanted: State) -> int:
    """Create a contact whose address has a state, by the actions that lead there, and return its id."""
    contact = home.contact(ADDRESS)
    if wanted.out_by == "recipient":
        home.opt_out(ADDRESS)
    if wanted.out_by == "operator":
        home.patch(contact.id, opt_in=False)
    if wanted.suppression:
        home.suppress(ADDRESS, wanted.suppression)
    assert state(home.channel(ADDRESS)) == wanted
    return int(contact.id)


def write_contact(home: Home, contact_id: int, body: dict[str, Any]) -> write.WriteResult:
    """Upsert the contact if the body has an email address at the top level, else patch it by its id."""
    return home.upsert(**body) if "email" in body else home.patch(contact_id, **body)


@pytest.mark.parametrize(
    ("column", "bodies", "name"), ACTIONS, ids=[f"{('alone', 'yes', 'no')[c]}-{n}" for c, _, n in ACTIONS]
)
@pytest.mark.parametrize("before", STATES)
def test_each_action_changes_consent_as_the_table_says(
    before: str, column: int, bodies: dict[str, Any], name: str, home: Home
) -> None:
    """The state after each action is that of the table, with one consent row if consent changed, else none."""
    contact_id = bring_into_state(home, STATES[before])
    rows = home.consent_rows(ADDRESS)
    write_contact(home, contact_id, bodies[name])
    expected = STATES_AFTER[before][column]
    assert state(home.channel(ADDRESS)) == expected
    added = home.consent_rows(ADDRESS)[len(rows) :]
    if expected.subscribed == STATES[before].subscribed:
        assert added == []
    else:
        assert added == [("opt_in" if expected.subscribed else "opt_out", "operator", "api", "key:1")]


@pytest.mark.parametrize("name", OPT_IN)
@pytest.mark.parametrize("before", STATES)
def test_a_suppressed_address_is_never_sendable(before: str, name: str, home: Home) -> None:
    """After an explicit opt-in an address is sendable if and only if it has no suppression."""
    contact_id = bring_into_state(home, STATES[before])
    write_contact(home, contact_id, OPT_IN[name])
    assert store.is_sendable(home.channel(ADDRESS)) is (STATES[before].suppression is None)


@pytest.mark.parametrize(
    ("body", "subscribed"),
    [(ADDRESS_ONLY["post"], True), (ADDRESS_ONLY["channel"], True), (OPT_IN["opt_in"], True), (OPT_IN["channel"], True),
     (OPT_OUT["opt_in"], False), (OPT_OUT["channel"], False)],
)  # fmt: skip
def test_a_new_address_is_opted_in_by_default(body: dict[str, Any], subscribed: bool, home: Home) -> None:
    """A new address is opted in unless the request opts it out; only an opt-in is recorded."""
    home.upsert(**body)
    assert state(home.channel(ADDRESS)) == State(subscribed)
    assert home.consent_rows(ADDRESS) == ([("opt_in", "operator", "api", "key:1")] if subscribed else [])


@pytest.mark.parametrize("field", ["subscribed_email", "opt_in"])
def test_opt_in_without_address_applies_to_all_addresses(field: str, home: Home) -> None:
    """`opt_in` without an address and `subscribed_email` change the addresses that the contact has."""
    contact_id = home.contact(ADDRESS).id
    home.patch(contact_id, **{field: False})
    assert state(home.channel(ADDRESS)) == OUT
    home.patch(contact_id, **{field: True})
    assert state(home.channel(ADDRESS)) == IN


def test_opting_out_the_phone_keeps_the_email(home: Home) -> None:
    """`subscribed_phone: false` opts out the phone and not the email address."""
    contact_id = home.contact(ADDRESS, phone="+14155550123").id
    home.patch(contact_id, subscribed_phone=False)
    assert state(home.channel(ADDRESS)) == IN and state(home.channel("+14155550123")) == OUT


@pytest.mark.parametrize("before", ["recipient", "complaint", "erased", "recipient + manual"])
def test_a_kept_opt_out_is_returned(before: str, home: Home) -> None:
    """`kept_opt_out` lists an address that stays opted out after an upsert, and no other address."""
    contact_id = bring_into_state(home, STATES[before])
    assert home.upsert(email=ADDRESS, phone="+14155550123").kept_opt_out == [ADDRESS]
    assert home.patch(contact_id, first_name="Ann").kept_opt_out == []


@pytest.mark.parametrize("before", ["subscribed", "operator"])
def test_no_opt_out_kept_none_returned(before: str, home: Home) -> None:
    """`kept_opt_out` is empty if the address is opted in after the upsert."""
    bring_into_state(home, STATES[before])
    assert home.upsert(email=ADDRESS).kept_opt_out == []


@pytest.mark.parametrize("before", [name for name in STATES if STATES[name].out_by or STATES[name].suppression])
@pytest.mark.parametrize("removed_by", ["delete", "destroy", "null", "move"])
def test_opt_outs_and_suppressions_outlive_the_contact(before: str, removed_by: str, home: Home) -> None:
    """After contact or channel is removed, an upsert of the address gives the same state as without the removal."""
    contact_id = bring_into_state(home, STATES[before])
    if removed_by == "delete":
        transactions.write(removal.delete, home.account_id, contact_id)
    elif removed_by == "destroy":
        home.patch(contact_id, channels_attributes=[{"id": home.channel(ADDRESS).id, "_destroy": True}])
    else:
        home.patch(contact_id, email=None if removed_by == "null" else "other@example.org")
    assert Channel.get_or_none(Channel.key == ADDRESS) is None
    home.upsert(email="ANN@Example.org", first_name="New")
    assert state(home.channel(ADDRESS)) == STATES_AFTER[before][0]


def test_an_opt_out_belongs_to_its_address(home: Home) -> None:
    """A contact who changes to another address is opted in there; changing back finds the opt-out again."""
    contact_id = home.contact(ADDRESS).id
    home.opt_out(ADDRESS)
    home.patch(contact_id, email="new@example.org")
    assert state(home.channel("new@example.org")) == IN
    assert home.patch(contact_id, email=ADDRESS).kept_opt_out == [ADDRESS]
    assert state(home.channel(ADDRESS)) == STATES["recipient"]


def test_a_lifted_opt_out_does_not_return(home: Home) -> None:
    """An address opted in again stays opted in after its contact is deleted and created again."""
    contact_id = bring_into_state(home, STATES["recipient"])
    home.upsert(email=ADDRESS, opt_in=True)
    transactions.write(removal.delete, home.account_id, contact_id)
    assert home.upsert(email=ADDRESS).kept_opt_out == []
    assert state(home.channel(ADDRESS)) == IN


def test_a_recipients_opt_out_outranks_the_operators(home: Home) -> None:
    """After an opt-out by operator and recipient, an upsert of the address alone does not opt it in."""
    bring_into_state(home, STATES["operator"])
    home.opt_out(ADDRESS)
    home.upsert(email=ADDRESS)
    assert state(home.channel(ADDRESS)) == STATES["recipient"]
    assert [row[:2] for row in home.consent_rows(ADDRESS)][-1] == ("opt_out", "recipient")


def test_consent_rows_keep_the_evidence(home: Home) -> None:
    """A consent row has action, source, actor, IP, user agent and text; it outlives the contact, without its id."""
    contact_id = home.contact(ADDRESS).id
    evidence = Evidence(source="ui", actor="user:3", ip="192.0.2.9", user_agent="Browser", text="Yes, I want news")
    transactions.write(lambda: consent.opt_out(home.channel(ADDRESS), "operator", evidence))
    transactions.write(lambda: consent.opt_in(home.channel(ADDRESS), "operator", evidence))
    transactions.write(removal.delete, home.account_id, contact_id)
    last = Consent.select().order_by(Consent.id.desc()).get()
    assert (last.act, last.by, last.source, last.actor) == ("opt_in", "operator", "ui", "user:3")
    assert (last.ip, last.user_agent, last.text) == ("192.0.2.0", "Browser", "Yes, I want news")
    assert last.contact_id is None and home.consent_rows(ADDRESS)[-1][0] == "opt_in"


def test_evidence_is_found_by_address_after_a_deletion(home: Home) -> None:
    """A contact created again has the earlier evidence of its address; other contacts do not."""
    first = home.contact(ADDRESS).id
    home.opt_out(ADDRESS)
    transactions.write(removal.delete, home.account_id, first)
    new_id, other_id = home.contact(ADDRESS).id, home.contact("bo@example.org").id
    evidence = timeline.fetch_evidence(home.account_id, new_id)

    assert [row.act for row in evidence.rows][-2:] == ["opt_out", "opt_in"] and evidence.total >= 2
    assert {row.address for row in evidence.rows} == {ADDRESS}
    assert {row.address for row in timeline.fetch_evidence(home.account_id, other_id).rows} == {"bo@example.org"}
