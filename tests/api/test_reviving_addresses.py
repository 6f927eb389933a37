"""Every state of an address, and every way to revive it through the API (docs/decisions.md#9, D36, D41).

Each combination has its own address. All actions are done first; then a campaign and a single message go to all
addresses, so that the table is compared with what is really sent.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from appliance.core import crypto
from appliance.sending.messages import links
from tests.conftest import FreshServer
from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.forms import BEHIND_PROXY, create_form, get_link, request_as_visitor, submit_form, wait_for_system_emails
from tests.kit.sampling import sampled
from tests.kit.server import Server
from tests.kit.uploads import import_results, upload, wait_for_import

# Each sign-up can have another client IP
SERVER_ENV = BEHIND_PROXY


class State(NamedTuple):
    """The consent and suppression of an address."""

    subscribed: bool
    by: str | None = None
    suppression: str | None = None


IN, OPERATOR, RECIPIENT = State(True), State(False, "operator"), State(False, "recipient")
COMPLAINT, ERASED = State(False, "recipient", "complaint"), State(False, "recipient", "erased")
BOUNCES = {name: State(True, None, name) for name in ("hard_bounce", "soft_bounce", "manual")}
STATES = {"operator": OPERATOR, "recipient": RECIPIENT, "complaint": COMPLAINT, "erased": ERASED, **BOUNCES}

# The result of an action for each state, in the order of STATES
ALONE = (IN, RECIPIENT, COMPLAINT, ERASED, *BOUNCES.values())
YES = (IN, IN, COMPLAINT, ERASED, *BOUNCES.values())
NO = (
    OPERATOR,
    RECIPIENT,
    COMPLAINT,
    ERASED,
    *(state._replace(subscribed=False, by="operator") for state in BOUNCES.values()),
)
NOTHING = tuple(STATES.values())
# Actions of the recipient: the preferences page, and a confirmation, for which undeliverable addresses get no email
PREFERRED = (IN, IN, COMPLAINT, ERASED, *BOUNCES.values())
CONFIRMED = (IN, IN, IN, IN, *BOUNCES.values())
LIFTED = (OPERATOR, RECIPIENT, RECIPIENT, RECIPIENT, IN, IN, IN)

Try = Callable[[Client, str, Any], Any]


def _patch(**body: Any) -> Try:
    return lambda api, address, contact: api.patch(f"/contacts/{contact['id']}", body).expect(200)


def _patch_channel(**body: Any) -> Try:
    """Return an action that patches the channel."""
    return lambda api, address, contact: api.patch(
        f"/contacts/{contact['id']}", {"channels_attributes": [{"id": contact["channels"][0]["id"], **body}]}
    ).expect(200)


def _post(**body: Any) -> Try:
    return lambda api, address, contact: api.post("/contacts", {"email": address.upper(), **body}).expect(200)


def _return(api: Client, address: str, contact: Any) -> Any:
    api.delete(f"/contacts/{contact['id']}").expect(200)
    return api.post("/contacts", {"email": address}).expect(201)


def _destroy(api: Client, address: str, contact: Any) -> Any:
    channel = {"id": contact["channels"][0]["id"], "_destroy": True}
    api.patch(f"/contacts/{contact['id']}", {"channels_attributes": [channel]}).expect(200)
    return api.patch(f"/contacts/{contact['id']}", {"channels_attributes": [{"value": address}]}).expect(200)


def _merge(api: Client, address: str, contact: Any) -> Any:
    other = api.post("/contacts", {"email": f"other.{address}", "opt_in": True}).expect(201)
    api.post(f"/contacts/{other['id']}/merge", {"contact_id": contact["id"]}).expect(200)


def _join(api: Client, address: str, contact: Any) -> Any:
    number = api.post("/lists", {"name": address}).expect(201)["id"]
    api.post(f"/lists/{number}/contacts/bulk", {"add": [contact["id"]]}).expect(200)
    api.patch(f"/lists/{number}", {"contact_ids": [contact["id"]]}).expect(200)


def _lift(api: Client, address: str, contact: Any) -> Any:
    for row in _suppressions(api, address):
        api.delete(f"/suppressions/{row['id']}", reason="they wrote to us").expect(200)


def _lift_without_reason(api: Client, address: str, contact: Any) -> Any:
    for row in _suppressions(api, address):
        for wrong in (None, {}, {"reason": ""}, {"reason": "  "}):
            error = api.delete(f"/suppressions/{row['id']}", wrong).expect(422)
            assert error["validation_errors"] == {"reason": ["can't be blank"]}


def _suppressions(api: Client, address: str) -> Any:
    return api.get("/suppressions", address=address, channel="email").expect(200)


def _resubscribe(server: Server, address: str, contact: Any) -> None:
    """Subscribe the address again on its preferences page."""
    crypto.load_key(server.data)
    sent = server.client().post("/messages", {"to": address, "subject": "s", "body": "b"})
    number = sent.json["id"] if sent.status == 201 else sent.json["message_id"]
    channel = contact["channels"][0]["id"]
    path = f"/p/{crypto.sign_token(links.PREFERENCES, number)}"
    page = request_as_visitor(server, "POST", path, {"act": "save", "channel_shown": [channel], "channel": [channel]})
    assert page.status == 200


def _sign_up_and_confirm(server: Server, form: Any, before: str, address: str) -> None:
    """Sign up with a form and confirm by the link in the email."""
    submit_form(server, form, email=address).expect(202)
    if before not in BOUNCES:
        (letter,) = wait_for_system_emails(server, address)
        assert request_as_visitor(server, "POST", get_link(letter), {"confirm": 1}).status == 200
    assert len(server.client().get("/messages", to=address, source_type="system").json) == (before not in BOUNCES)


# name: the action, its result for each state, and whether the response lists kept opt-outs
TRIES: dict[str, tuple[Try | None, tuple[State, ...], bool]] = {
    "write": (_post(), ALONE, True),
    "write more": (_post(first_name="New", data={"a": 1}), ALONE, True),
    "write the channel": (lambda api, address, contact: api.patch(
        f"/contacts/{contact['id']}", {"channels_attributes": [{"value": address}]}).expect(200), ALONE, True),
    "change the name": (_patch(first_name="New"), NOTHING, False),
    "opt_in": (_post(opt_in=True), YES, True),
    "channel subscribed": (_patch_channel(subscribed=True), YES, True),
    "subscribed_email": (_patch(subscribed_email=True), YES, True),
    "opt_in false": (_post(opt_in=False), NO, False),
    "channel not subscribed": (_patch_channel(subscribed=False), NO, False),
    "import": (None, ALONE, True),
    "import without opt_in": (None, NOTHING, False),
    "delete and return": (_return, ALONE, True),
    "remove and return": (_destroy, ALONE, True),
    "merge": (_merge, NOTHING, False),
    "list": (_join, NOTHING, False),
    "preferences": (None, PREFERRED, False),
    "confirmation": (None, CONFIRMED, False),
    "lift": (_lift, LIFTED, False),
    "lift without a reason": (_lift_without_reason, NOTHING, False),
}  # fmt: skip
CELLS = [(before, name) for before in STATES for name in TRIES]
# Each action in some of the states
SAMPLE = CELLS[3::4]


def address_of(before: str, name: str) -> str:
    """Return the address of a combination."""
    return f"{before}.{name.replace(' ', '-')}@example.org"


class Results(NamedTuple):
    """The results of all combinations, by address."""

    api: Client
    kept: dict[str, list[str]]  # by address: `kept_opt_out` of the response
    campaign: dict[str, Any]  # by address: the message of the campaign
    single: dict[str, Any]  # by address: the response to a single message


@pytest.fixture(scope="module")
def results(server: Server, full: bool) -> Results:
    """Create the states, do the actions, then send to all addresses."""
    # Not validated against the document: other tests do that, and these are a thousand requests
    api = server.client(validate=False, keep_alive=True)
    cells = CELLS if full else SAMPLE
    contacts = {cell: create_state(api, *cell) for cell in cells}
    kept: dict[str, list[str]] = {}
    for before, name in cells:
        act, address = TRIES[name][0], address_of(before, name)
        if act is not None:
            response = act(api, address, contacts[before, name])
            kept[address] = (response or {}).get("kept_opt_out", [])
    form = create_form(server, "Letter")
    for before, name in cells:
        if name == "preferences":
            _resubscribe(server, address_of(before, name), contacts[before, name])
        elif name == "confirmation":
            _sign_up_and_confirm(server, form, before, address_of(before, name))
    for action, wanted in (("import", True), ("import without opt_in", False)):
        lines = "".join(f"{address_of(before, name)},Imported\n" for before, name in cells if name == action)
        job = wait_for_import(api, upload(api, f"email,first_name\n{lines}", opt_in=wanted, consent_source="a sheet"))
        for row in import_results(api, job["id"]):
            kept[row["address"]] = row["kept_opt_out"].split()
    everyone = api.post("/lists", {"name": "Everyone"}).expect(201)["id"]
    people = [row["id"] for row in api.all("/contacts")]
    api.patch(f"/lists/{everyone}", {"contact_ids": people}).expect(200)
    campaign = api.post("/campaigns", {"name": "To all"}).expect(201)["id"]
    order = {"trigger_attributes": {"contact_list_id": everyone}, "template_attributes": {"subject": "s", "body": "b"}}
    api.post(f"/campaigns/{campaign}/send", order).expect(200)
    api.wait(f"/campaigns/{campaign}", lambda row: row["status"] == "completed")
    rows = {row["to"].lower(): row for row in api.all("/messages", campaign_id=campaign)}
    letter = {"subject": "s", "body": "b"}
    single = {address_of(*cell): api.post("/messages", {"to": address_of(*cell), **letter}) for cell in cells}
    return Results(api, kept, rows, single)


def create_state(api: Client, before: str, name: str) -> Any:
    """Bring a new address into a state, and return its contact."""
    address = address_of(before, name)
    contact = api.post("/contacts", {"email": address}).expect(201)
    if before == "operator":
        api.patch(f"/contacts/{contact['id']}", {"opt_in": False}).expect(200)
    elif before == "recipient":
        message = api.post("/messages", {"to": address, "subject": "s", "body": "b", "transactional": False}).expect(
            201
        )
        [row] = api.wait("/capture", bool, message_id=message["id"])
        api.post(f"/capture/{row['id']}/simulate", {"action": "unsubscribe"}).expect(200)
    elif before == "erased":
        api.delete(f"/contacts/{contact['id']}", erase="true").expect(200)
        contact = api.post("/contacts", {"email": address}).expect(201)
        assert contact["kept_opt_out"] == [address]
    else:
        api.post("/suppressions", {"address": address, "reason": before}).expect(201)
    contact = api.get(f"/contacts/{contact['id']}").expect(200)
    assert state_of(contact) == STATES[before], before
    return contact


def state_of(contact: Any) -> State:
    """Return the state of the first address of a contact."""
    channel = contact["channels"][0]
    return State(channel["subscribed"], channel["opted_out_by"], channel["suppression_reason"])


def current_state(results: Results, address: str) -> State:
    """Return the current state of an address, whichever contact has it."""
    [contact] = [row for row in results.api.get("/contacts", search=address.partition("@")[0]).expect(200)
                 if any(channel["value"].lower() == address for channel in row["channels"])]  # fmt: skip
    channel = next(channel for channel in contact["channels"] if channel["value"].lower() == address)
    return State(channel["subscribed"], channel["opted_out_by"], channel["suppression_reason"])


@pytest.mark.parametrize(
    ("before", "name"), sampled(CELLS, SAMPLE), ids=[f"{before}: {name}" for before, name in CELLS]
)
def test_every_action_in_every_state(before: str, name: str, results: Results) -> None:
    """The action has the documented result, kept opt-outs are listed, and only allowed addresses get mail."""
    _, cells, says = TRIES[name]
    expected, address = cells[list(STATES).index(before)], address_of(before, name)
    assert current_state(results, address) == expected
    is_kept = says and (not expected.subscribed or expected.suppression is not None)
    assert [value.lower() for value in results.kept.get(address, [])] == ([address] if is_kept else [])

    message = results.campaign[address] if name != "merge" else None
    if message is not None:
        reason = f"suppressed_{expected.suppression}" if expected.suppression else "unsubscribed"
        may = expected.subscribed and not expected.suppression
        assert (message["status"], message["skip_reason"]) == (("sent", None) if may else ("skipped", reason))

    response = results.single[address]
    if expected.suppression is None:
        assert (response.status, response.json["status"]) == (201, "queued")
    else:
        error = response.expect(422)
        assert (error["reason"], error["skip_reason"]) == ("recipient_suppressed", f"suppressed_{expected.suppression}")
        kept = results.api.get(f"/messages/{error['message_id']}").expect(200)
        assert (kept["status"], kept["skip_reason"]) == ("skipped", f"suppressed_{expected.suppression}")


def test_consent_evidence_of_every_change(results: Results) -> None:
    """Each change of consent has a row with act, source and actor; other actions have none."""
    address = address_of("recipient", "opt_in")
    [contact] = [row for row in results.api.get("/contacts", search="recipient.opt_in").expect(200)
                 if row["channels"][0]["value"] == address]  # fmt: skip
    rows = results.api.get(f"/contacts/{contact['id']}/consents").expect(200)
    acts = [(row["act"], row["by"], row["source"]) for row in reversed(rows)]
    assert acts == [("opt_in", "operator", "api"), ("opt_out", "recipient", "capture"), ("opt_in", "operator", "api")]
    assert all(row["actor"] for row in rows) and "recipient" in [row["actor"] for row in rows]


def test_suppressions_apply_to_one_account(results: Results, server: Server) -> None:
    """The same addresses are not suppressed in another account."""
    number = server.cli("account", "add", "Elsewhere").stdout.strip()
    other = server.client(server.new_key("elsewhere", "--account", number))
    for before in STATES:
        name = next(name for state, name in SAMPLE if state == before)
        assert state_of(other.post("/contacts", {"email": address_of(before, name)}).expect(201)) == IN


def test_a_manual_suppression_expires(fresh_server: FreshServer, clock: TestClock) -> None:
    """Until `expires_at` the address is suppressed; other reasons cannot expire."""
    from datetime import UTC, datetime

    server = fresh_server(clock=clock)
    api = server.client()
    end = datetime.fromtimestamp(clock.now() + 30 * 86400, UTC).isoformat()
    contact = api.post("/contacts", {"email": "pause@example.org"}).expect(201)
    api.post("/suppressions", {"address": "pause@example.org", "expires_at": end}).expect(201)
    letter = {"to": "pause@example.org", "subject": "s", "body": "b"}
    for reason in ("hard_bounce", "soft_bounce", "complaint"):
        body = {"address": "x@example.org", "reason": reason, "expires_at": end}
        assert list(api.post("/suppressions", body).expect(422)["validation_errors"]) == ["expires_at"]
    clock.advance(days=29)
    assert api.post("/messages", letter).expect(422)["skip_reason"] == "suppressed_manual"
    clock.advance(days=1, seconds=1)
    assert api.post("/messages", letter).status == 201
    assert state_of(api.get(f"/contacts/{contact['id']}").expect(200)) == IN
