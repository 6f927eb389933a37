"""The tables of error codes, events, statuses, scopes and roles agree with the service."""

import ast
import re
from functools import cache
from typing import NamedTuple, get_args

from appliance.accounts import access
from appliance.api import dispatch, endpoints
from appliance.api.routes import ROUTES
from appliance.campaigns import states as campaign_states
from appliance.events import log
from appliance.flows import document, lifecycle
from tests.kit.server import ROOT
from tests.rules import published
from tests.rules.contract import errors, words
from tests.rules.contract.fields import FIELDS
from ui import labels


class Texts(NamedTuple):
    """What the tables are compared with: the string constants of the product, and the reasons of its 422 errors."""

    constants: set[str]  # and every quoted word in them
    reasons: set[str]


@cache
def _parse_product() -> Texts:
    texts = Texts(set(), set())
    for path in (ROOT / "appliance").rglob("*.py"):
        is_openapi = path.parent.name == "openapi"  # it may speak of what others build
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Constant(value=str(text)) if not is_openapi:
                    texts.constants.add(text)
                    texts.constants.update(re.findall(r"'(\w+)'", text))
                case ast.Call(func=ast.Name(id="Invalid"), keywords=keywords):
                    reasons = (keyword.value for keyword in keywords if keyword.arg == "reason")
                    texts.reasons.update(reason.value for reason in reasons if isinstance(reason, ast.Constant))
    return texts


def _find_in_sources(pattern: str, *trees: str) -> set[str]:
    """Return what the group of a pattern matches in the sources."""
    matches: set[str] = set()
    for tree in trees:
        for path in (ROOT / tree).rglob("*.py"):
            matches.update(re.findall(pattern, path.read_text()))
    return matches


def test_error_codes() -> None:
    """Exactly the error codes of the table are used."""
    codes = {code for origin, _, code in errors.CODES if origin != "L"}
    later = {code for origin, _, code in errors.CODES if origin == "L"}
    raised = _find_in_sources(r"ApiError\(\s*\d{3},\s*\"(\w+)\"", "appliance") | _find_in_sources(
        r"\n    code = \"(\w+)\"", "appliance/api"
    )
    raised |= _find_in_sources(r"code=\"(\w+)\"", "appliance/accounts", "appliance/events")
    raised |= set(re.findall(r"\d{3}, \"([a-z_]+)\", ", (ROOT / "appliance" / "api" / "http.py").read_text()))
    raised |= set(
        re.findall(r"code(?:: str)? = \"(\w+)\"", (ROOT / "appliance" / "core" / "errors.py").read_text())
    ) - {"refused"}
    assert codes - _parse_product().constants == set()
    assert raised - codes - {"validation_error"} <= later, raised - codes
    assert not later & _parse_product().constants, "take the mark away"


def test_published_error_codes() -> None:
    """The document has exactly the codes of the table."""
    code = published.merge_all_of(published.document()["components"]["schemas"]["ErrorResponse"])["properties"]["code"]
    assert set(published.notation(code)[len("enum(") : -1].split(",")) == {code for _, _, code in errors.CODES}


def test_published_headers() -> None:
    """Every response header of the table is in the document."""
    result = set(re.findall(r"'([A-Z][\w-]+)': \{'(?:description|\$ref)", str(published.document())))
    assert {name for group, _, name in words.HEADERS if group != "requests"} <= result


def test_error_reasons() -> None:
    """Exactly the reasons of the table are used in 422 errors."""
    given, constants = _parse_product().reasons, _parse_product().constants
    assert len(given) > 5 and given <= set(errors.REASONS) <= constants


def test_stable_messages() -> None:
    """Every message that clients may compare is in the sources."""
    every = "\n".join(path.read_text() for path in (ROOT / "appliance").rglob("*.py"))
    for message in errors.MESSAGES:
        parts = [part for part in message.split("{}") if part]
        assert all(part.rstrip(")") in every for part in parts), message


def test_event_names() -> None:
    """The service records exactly the events of the table, and names of clients follow the pattern."""
    promised = {(group, name) for group, origin, name in words.EVENTS if origin != "L"}
    clients = {("client", event["name"]) for event in document.build_spec()["events"] if event["group"] == "client"}
    assert {(kind.group, kind.name) for kind in log.EVENT_KINDS} | clients == promised
    assert {name for group, name in promised if group != "client"} == log.RESERVED_NAMES
    for name, error in (("a" * 64, None), ("a" * 65, "is invalid"), ("A", "is invalid"), ("1a", "is invalid"),
                        ("checkout", None), ("email_sent", "is reserved"), ("a-b", "is invalid")):  # fmt: skip
        assert log.find_name_error(name) == error
        assert bool(re.fullmatch(words.EVENT_PATTERN, name)) == (error != "is invalid")


def test_ledger_statuses() -> None:
    """Each message status belongs to one term of the ledger and has a label."""
    statuses = [status for term in words.LEDGER.values() for status in term]
    assert len(statuses) == len(set(statuses)) and set(statuses) == set(labels._STATUSES)
    published = next(field for field in FIELDS if (field.shape, field.name) == ("Message", "status"))
    assert set(published.type.removeprefix("enum(").rstrip(")").split(",")) == set(statuses)
    assert {field.name for field in FIELDS if field.shape == "CampaignStats"} == {"audience", "accepted", *words.LEDGER}
    assert set(words.ACCEPTED) < set(words.LEDGER)


def test_skip_reasons() -> None:
    """Exactly the skip reasons of the table are used and have labels."""
    promised = {name for _, name in words.SKIPS}
    known = _parse_product().constants & promised
    suppressed = {f"suppressed_{reason}" for reason in labels.list_suppressions()}
    assert promised - known - suppressed == set()
    assert suppressed == {name for name in promised if name.startswith("suppressed_")}
    texts = set(labels._REASONS) | set(labels._SMS_REASONS)
    pauses = {"bounce_rate", "complaint_rate", "transport", "missed_start", "domain_failed", "may_have_started"}
    assert texts - pauses - promised == set()


def test_transitions() -> None:
    """The transitions of campaigns and flows are those of the table."""
    assert campaign_states.ALLOWED == words.CAMPAIGN_MOVES
    assert lifecycle.TRANSITIONS == words.FLOW_MOVES


def test_scopes_and_roles() -> None:
    """Scopes, bundles of scopes and the scopes of roles are those of the table."""
    assert set(words.SCOPES) == access.SCOPES
    for word, scopes in words.BUNDLES.items():
        assert access.expand_scopes(word) == set(scopes)
    assert access.ROLES == words.ROLES
    for role, lacking in words.NOT_OF_ROLES.items():
        assert not set(lacking) & access.role_scopes(role)
    of_users = {access.SELF_SCOPE, access.EXPORT_SCOPE, access.FULL_SCOPE}
    assert all(scope.endswith(":read") for scope in access.role_scopes("viewer") - of_users)
    every = access.SCOPES | of_users | {access.ADMIN_SCOPE}
    assert access.role_scopes("owner") == access.role_scopes("admin") == every
    assert access.role_scopes("nobody") == frozenset()


def test_every_route_has_a_scope_that_exists() -> None:
    """Each route needs a scope that a credential can have."""
    assert {route.scope for route in ROUTES} <= {*words.SCOPES, access.ADMIN_SCOPE, access.SELF_SCOPE}
    assert set(get_args(endpoints.RequestClass)) == {"requests", "messages", "sends", "renders"}
    assert f"{dispatch.API_VERSION}".startswith("1.")
