"""Who lifts what: the table of consent, cell by cell, for every act that the API has (docs/decisions.md#9)."""

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
    """How an address stands: consent and suppression."""

    subscribed: bool
    out_by: str | None = None
    suppression: str | None = None


IN = State(True)
# What an address was before the act: the columns of the table, and states that are two at once
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

# The acts, as the bodies in which they come
ALONE: dict[str, dict[str, Any]] = {
    "post": {"email": ADDRESS},
    "channel": {"channels_attributes": [{"value": ADDRESS}]},
}
YES: dict[str, dict[str, Any]] = {
    "opt_in": {"email": ADDRESS, "opt_in": True},
    "channel": {"channels_attributes": [{"value": ADDRESS, "subscribed": True}]},
}
NO: dict[str, dict[str, Any]] = {
    "opt_in": {"email": ADDRESS, "opt_in": False},
    "channel": {"channels_attributes": [{"value": ADDRESS, "subscribed": False}]},
}

# What each state becomes: (by the address alone, by a yes, by a no); the cells of the table
OUT = State(False, "operator")
CELLS: dict[str, tuple[State, State, State]] = {
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
ACTS = [(0, ALONE, name) for name in ALONE] + [(1, YES, name) for name in YES] + [(2, NO, name) for name in NO]


def state(channel: Channel) -> State:
    """Return how a channel stands."""
    return State(channel.subscribed, channel.opted_out_by, channel.suppression)


def reach(home: Home, wanted: State) -> int:
    """Bring an address into a state by the acts that lead there, and answer its contact."""
    contact = home.contact(ADDRESS)
    if wanted.out_by == "recipient":
        home.leave(ADDRESS)
    if wanted.out_by == "operator":
        home.patch(contact.id, opt_in=False)
    if wanted.suppression:
        home.suppress(ADDRESS, wanted.suppression)
    assert state(home.channel(ADDRESS)) == wanted
    return int(contact.id)


def act(home: Home, contact_id: int, body: dict[str, Any]) -> write.WriteResult:
    """Write to the contact: by its address where the body names it at the top, else by its id."""
    return home.upsert(**body) if "email" in body else home.patch(contact_id, **body)


@pytest.mark.parametrize(
    ("column", "bodies", "name"), ACTS, ids=[f"{('alone', 'yes', 'no')[c]}-{n}" for c, _, n in ACTS]
)
@pytest.mark.parametrize("before", STATES)
def test_who_lifts_what(before: str, column: int, bodies: dict[str, Any], name: str, home: Home) -> None:
    """Each act leaves each state exactly as the table says, with a consent row for each change and none without."""
    contact_id = reach(home, STATES[before])
    rows = home.acts(ADDRESS)
    act(home, contact_id, bodies[name])
    expected = CELLS[before][column]
    assert state(home.channel(ADDRESS)) == expected
    added = home.acts(ADDRESS)[len(rows) :]
    if expected.subscribed == STATES[before].subscribed:
        assert added == []
    else:
        assert added == [("opt_in" if expected.subscribed else "opt_out", "operator", "api", "key:1")]


@pytest.mark.parametrize("name", YES)
@pytest.mark.parametrize("before", STATES)
def test_only_who_may_be_written_to_is_sendable(before: str, name: str, home: Home) -> None:
    """Even after an explicit yes nobody with a suppression is sendable, and everybody without one is."""
    contact_id = reach(home, STATES[before])
    act(home, contact_id, YES[name])
    assert store.is_sendable(home.channel(ADDRESS)) is (STATES[before].suppression is None)


@pytest.mark.parametrize(
    ("body", "subscribed"),
    [(ALONE["post"], True), (ALONE["channel"], True), (YES["opt_in"], True), (YES["channel"], True),
     (NO["opt_in"], False), (NO["channel"], False)],
)  # fmt: skip
def test_a_new_channel(body: dict[str, Any], subscribed: bool, home: Home) -> None:
    """A new address is opted in unless the write says no; only an opt-in is recorded."""
    home.upsert(**body)
    assert state(home.channel(ADDRESS)) == State(subscribed)
    assert home.acts(ADDRESS) == ([("opt_in", "operator", "api", "key:1")] if subscribed else [])


@pytest.mark.parametrize("field", ["subscribed_email", "opt_in"])
def test_wishes_without_an_address(field: str, home: Home) -> None:
    """`opt_in` without an address and `subscribed_email` mean the addresses the contact has, in both directions."""
    contact_id = home.contact(ADDRESS).id
    home.patch(contact_id, **{field: False})
    assert state(home.channel(ADDRESS)) == OUT
    home.patch(contact_id, **{field: True})
    assert state(home.channel(ADDRESS)) == IN


def test_one_kind_leaves_the_other_alone(home: Home) -> None:
    """`subscribed_phone: false` opts out the phone and not the e-mail address."""
    contact_id = home.contact(ADDRESS, phone="+14155550123").id
    home.patch(contact_id, subscribed_phone=False)
    assert state(home.channel(ADDRESS)) == IN and state(home.channel("+14155550123")) == OUT


@pytest.mark.parametrize("before", ["recipient", "complaint", "erased", "recipient + manual"])
def test_a_kept_opt_out_is_said(before: str, home: Home) -> None:
    """A write of the address alone that keeps an opt-out names the address; other addresses are not named."""
    contact_id = reach(home, STATES[before])
    assert home.upsert(email=ADDRESS, phone="+14155550123").kept_opt_out == [ADDRESS]
    assert home.patch(contact_id, first_name="Ann").kept_opt_out == []


@pytest.mark.parametrize("before", ["subscribed", "operator"])
def test_nothing_kept_nothing_said(before: str, home: Home) -> None:
    """A write that keeps no opt-out names none."""
    reach(home, STATES[before])
    assert home.upsert(email=ADDRESS).kept_opt_out == []


@pytest.mark.parametrize("before", [name for name in STATES if STATES[name].out_by or STATES[name].suppression])
@pytest.mark.parametrize("how", ["delete", "destroy", "null", "move"])
def test_it_survives_the_contact(before: str, how: str, home: Home) -> None:
    """Opt-outs and suppressions outlive contact and channel: the address comes back as if it had never gone."""
    contact_id = reach(home, STATES[before])
    if how == "delete":
        transactions.write(removal.delete, home.account_id, contact_id)
    elif how == "destroy":
        home.patch(contact_id, channels_attributes=[{"id": home.channel(ADDRESS).id, "_destroy": True}])
    else:
        home.patch(contact_id, email=None if how == "null" else "other@example.org")
    assert Channel.get_or_none(Channel.key == ADDRESS) is None
    home.upsert(email="ANN@Example.org", first_name="New")
    assert state(home.channel(ADDRESS)) == CELLS[before][0]


def test_an_opt_out_belongs_to_its_address(home: Home) -> None:
    """A contact who moves to another address leaves the opt-out with the old one, and finds it there on return."""
    contact_id = home.contact(ADDRESS).id
    home.leave(ADDRESS)
    home.patch(contact_id, email="new@example.org")
    assert state(home.channel("new@example.org")) == IN
    assert home.patch(contact_id, email=ADDRESS).kept_opt_out == [ADDRESS]
    assert state(home.channel(ADDRESS)) == STATES["recipient"]


def test_a_lifted_opt_out_is_forgotten(home: Home) -> None:
    """Who was opted in again by an explicit yes stays in when contact and address go and come back."""
    contact_id = reach(home, STATES["recipient"])
    home.upsert(email=ADDRESS, opt_in=True)
    transactions.write(removal.delete, home.account_id, contact_id)
    assert home.upsert(email=ADDRESS).kept_opt_out == []
    assert state(home.channel(ADDRESS)) == IN


def test_a_recipient_outranks_the_operator(home: Home) -> None:
    """A recipient who leaves after an operator's opt-out is not brought back by the address alone."""
    reach(home, STATES["operator"])
    home.leave(ADDRESS)
    home.upsert(email=ADDRESS)
    assert state(home.channel(ADDRESS)) == STATES["recipient"]
    assert [row[:2] for row in home.acts(ADDRESS)][-1] == ("opt_out", "recipient")


def test_the_evidence_is_kept(home: Home) -> None:
    """A consent row tells act, source, actor and address, and outlives the contact without naming it."""
    contact_id = home.contact(ADDRESS).id
    evidence = Evidence(source="ui", actor="user:3", ip="192.0.2.9", user_agent="Browser", text="Yes, I want news")
    transactions.write(lambda: consent.opt_out(home.channel(ADDRESS), "operator", evidence))
    transactions.write(lambda: consent.opt_in(home.channel(ADDRESS), "operator", evidence))
    transactions.write(removal.delete, home.account_id, contact_id)
    last = Consent.select().order_by(Consent.id.desc()).get()
    assert (last.act, last.by, last.source, last.actor) == ("opt_in", "operator", "ui", "user:3")
    assert (last.ip, last.user_agent, last.text) == ("192.0.2.0", "Browser", "Yes, I want news")
    assert last.contact_id is None and home.acts(ADDRESS)[-1][0] == "opt_in"


def test_evidence_from_before_is_found_by_the_address(home: Home) -> None:
    """Who comes back has the evidence about the address from when it was somebody who is gone; nobody else has it."""
    first = home.contact(ADDRESS).id
    home.leave(ADDRESS)
    transactions.write(removal.delete, home.account_id, first)
    again, other = home.contact(ADDRESS).id, home.contact("bo@example.org").id
    found = timeline.fetch_evidence(home.account_id, again)

    assert [row.act for row in found.rows][-2:] == ["opt_out", "opt_in"] and found.total >= 2
    assert {row.address for row in found.rows} == {ADDRESS}
    assert {row.address for row in timeline.fetch_evidence(home.account_id, other).rows} == {"bo@example.org"}
