"""The choice of a transport by rules: exactly one or none, the same each time, shares that converge (P3)."""

import random
from collections import Counter
from typing import Any

import msgspec
import pytest

from appliance.core.errors import ConfigError
from appliance.sending.messages.ledger import LedgerRow
from appliance.sending.messages.transport_choice import ALL_OPEN, TransportRules, TransportStates
from appliance.settings import config, transports
from appliance.settings.schema import Email, NamedTransport, Route


def build_row(address: str = "ana@crowd.example", **values: Any) -> LedgerRow:
    """Return a row of marketing email that was queued for the default transport."""
    usual = dict.fromkeys(LedgerRow._fields) | {
        "id": 1, "account_id": 1, "channel": "email", "recipient": address, "recipient_key": address,
        "provider": "relay", "source_type": "campaign", "transactional": False, "test": False, "attempts": 0,
        "uncertain_count": 0, "created_at": 0, "sender": "news@bakery.example",
    }  # fmt: skip
    return LedgerRow(**usual | values)


def build_email(*routes: Route, keys: tuple[str, ...] = ("a", "b", "c"), transport: Any = "relay") -> Email:
    """Return the settings of a relay with further relays and rules."""
    named = [NamedTransport(key=key, name=key, kind="relay", options={"host": "x"}) for key in keys]
    return msgspec.structs.replace(Email(), transport=transport, transports=named, routes=list(routes))


def choose(email: Email, row: LedgerRow, states: TransportStates = ALL_OPEN) -> str:
    """Return the transport that is chosen for a row."""
    return TransportRules(email).choose(row, states).provider


def test_the_first_rule_that_matches_decides() -> None:
    """Sending domain, class and provider of the recipient are conditions; the default transport takes the rest."""
    email = build_email(
        Route({"a": 1}, domains=["shop.example"], traffic="transactional"),
        Route({"b": 1}, recipients=["google", "crowd.example"]),
        Route({"c": 1}, traffic="marketing"),
    )
    cases = (
        (build_row(sender="x@Shop.example", transactional=True), "a"),
        (build_row(sender="x@other.shop.example", transactional=True), "b"),
        (build_row("ana@gmail.com"), "b"), (build_row("ana@sub.crowd.example"), "c"),
        (build_row("ana@web.de", transactional=True), "relay"),
    )  # fmt: skip
    assert [choose(email, row) for row, _ in cases] == [key for _, key in cases]


def test_every_message_has_one_transport_or_waits() -> None:
    """With random rules and states, the choice is a candidate, open if any is, and the same for the same input."""
    rng = random.Random(7)
    keys = ("default", "a", "b", "c")
    for _ in range(2_000):
        routes = [
            Route(
                {key: rng.choice((0, 1, 30, 100)) for key in rng.sample(keys, rng.randint(1, 4))},
                traffic=rng.choice(("all", "marketing", "transactional")),
                recipients=rng.choice(([], [], ["google"], ["crowd.example"])),
            )
            for _ in range(rng.randint(0, 3))
        ]  # fmt: skip
        rules = TransportRules(build_email(*routes))
        row = build_row(
            f"p{rng.random()}@{rng.choice(('gmail.com', 'crowd.example'))}", transactional=rng.random() < 0.5
        )
        states = TransportStates(
            frozenset(rng.sample(("relay", "a", "b", "c"), rng.randint(0, 4))), frozenset(rng.sample("abc", 1)),
            frozenset({(rng.choice("abc"), "google")}),
        )  # fmt: skip
        candidates, chosen = rules.list_candidates(row), rules.choose(row, states)
        usable = [key for key in candidates if states.is_open(key, row)]
        assert len(set(candidates)) == len(candidates) and set(candidates) <= {"relay", "a", "b", "c"}
        assert chosen.provider == (usable or candidates)[0]
        assert rules.choose(chosen, states) == chosen, "the choice depends on the transport of the row"


def test_a_message_in_doubt_keeps_its_transport() -> None:
    """Neither rules nor a closed transport move a message that may have been accepted, or one of the test inbox."""
    email = build_email(Route({"a": 1, "b": 0}))
    closed = TransportStates(frozenset({"c", "a"}))
    assert choose(email, build_row(provider="c", uncertain_count=1), closed) == "c"
    assert choose(email, build_row(provider="capture"), closed) == "capture"
    assert choose(email, build_row(provider="c"), closed) == "b"
    rules = TransportRules(email)
    assert not rules.has_alternative(build_row(provider="a", uncertain_count=1))
    assert rules.has_alternative(build_row(provider="a"))


def test_shares_converge_and_move_few_recipients() -> None:
    """Recipients are divided by weight; closing a transport moves only its recipients, in proportion."""
    email = build_email(Route({"a": 60, "b": 30, "c": 10}))
    rows = [build_row(f"p{number}@crowd.example") for number in range(20_000)]
    before = [choose(email, row) for row in rows]
    after = [choose(email, row, TransportStates(frozenset("a"))) for row in rows]
    counts, moved = Counter(before), Counter(after)

    for key, share in (("a", 0.6), ("b", 0.3), ("c", 0.1)):
        assert abs(counts[key] / len(rows) - share) < 0.015, counts
    assert all(first == second for first, second in zip(before, after, strict=True) if first != "a")
    assert abs(moved["b"] / len(rows) - 0.75) < 0.015 and not moved["a"]


def test_messages_of_a_deleted_transport_go_to_the_default_one() -> None:
    """A message that was queued for a transport that no longer exists is not stuck; other old ones keep theirs."""
    email = build_email(keys=())
    replace = TransportRules(email).replace_deleted
    assert replace(build_row(provider="gone")).provider == "relay"
    assert [replace(build_row(provider=key)).provider for key in ("ses", "capture")] == ["ses", "capture"]


def test_a_transport_is_replaceable_if_no_rule_depends_on_it() -> None:
    """A campaign need not be paused because one transport rejects us, if another takes all of its messages."""
    email = build_email(Route({"a": 1, "b": 0}), Route({"b": 1}, domains=["x.example"]))
    rules = TransportRules(email)
    assert [rules.is_replaceable(key) for key in ("a", "b", "c", "relay")] == [True, False, False, False]
    assert not TransportRules(build_email(Route({"default": 1, "a": 0}, traffic="marketing"))).is_replaceable("relay")
    assert TransportRules(build_email(Route({"default": 1, "a": 0}))).is_replaceable("relay")


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"transports": [{"key": "a", "name": "A", "kind": "pigeon"}]}, "kind must be one of"),
        ({"transports": [{"key": "a", "name": "A", "kind": "relay"}]}, "host is required"),
        ({"transports": [{"key": "ses", "name": "A", "kind": "relay", "options": {"host": "x"}}]}, "is reserved"),
        ({"transports": [{"key": "a", "name": "A", "kind": "relay", "options": {"hots": "x", "host": "x"}}]},
         "hots is not an option of relay"),
        ({"transports": [{"key": "a", "name": "A", "kind": "relay", "options": {"host": "x", "port": 0}}]}, "port Exp"),
        ({"transports": [{"key": "a", "name": "A", "kind": "direct"}]}, "key of direct delivery must be direct"),
        ({"transports": 2 * [{"key": "direct", "name": "A", "kind": "direct"}]}, "used twice"),
        ({"routes": [{"shares": {"a": 1}}]}, "rule 1 names the transport a, which does not exist"),
        ({"routes": [{"shares": {"default": 0}}]}, "needs a transport with a share above 0"),
        ({"routes": [{"shares": {"default": 1}, "domain": "x"}]}, "email.routes"),
    ],
)  # fmt: skip
def test_faults_of_the_settings_are_named(settings: dict[str, Any], fault: str) -> None:
    """A transport or rule that cannot work is an error of the configuration."""
    with pytest.raises(ConfigError, match=fault):
        config.load({f"email.{name}": value for name, value in settings.items()}, {})


def test_a_transport_uses_the_settings_of_email_with_its_own_options() -> None:
    """The options of a transport take the place of the section of its kind; all else is shared."""
    options = {"email.transports": [
        {"key": "eu", "name": "SES", "kind": "ses", "options": {"region": "eu-west-1", "access_key_id": "A",
         "secret_access_key": "s"}, "connections": 7},
    ]}  # fmt: skip
    email = config.load(options, {}).config.email
    own = transports.build_settings("eu", email)
    assert (own.transport, own.ses.region, own.connections, own.relay) == ("ses", "eu-west-1", 7, email.relay)
    assert transports.get_kind("eu", email) == "ses" and transports.get_kind("relay", email) == "relay"
