"""The table `agent_routes.txt` has the endpoints that are open to agents, with the scope that each needs."""

from pathlib import Path

from appliance.accounts import access
from appliance.api.doors import DOORS
from appliance.api.routes import ROUTES, SERVICE_ROUTES

TABLE = Path(__file__).with_name("agent_routes.txt")


def test_open_endpoints_match_the_table() -> None:
    """An endpoint that is opened to agents, or closed to them, must change the table."""
    opened = [f"{route.method} {route.path} {route.agent_scope}" for route in ROUTES if route.agent_scope is not None]
    assert sorted(opened, key=lambda line: (line.split()[1], line)) == TABLE.read_text().splitlines()
    assert not [route.path for route in SERVICE_ROUTES if route.agent_scope is not None]


def test_open_endpoints_need_scopes_that_agents_may_have() -> None:
    """A read needs the scope that others need; an act needs a scope of drafts or proposals, never one of sending."""
    for route in ROUTES:
        if route.agent_scope is None:
            continue
        assert route.agent_scope in access.AGENT_SCOPES, route.path
        if not route.is_agent_act:
            assert route.agent_scope == route.scope, route.path
            assert route.method == "GET" or route.rate == "renders", route.path
        assert not route.changes_sending, route.path


def test_agents_have_no_scope_that_sends_or_takes_effect() -> None:
    """The scopes of agents are written out here once more, so that a new one is a decision."""
    assert {name for name in access.AGENT_SCOPES if not name.endswith(":read")} == {
        "campaigns:write", "flows:write", "templates:write", "segments:write", "proposals:write",
    }  # fmt: skip
    forbidden = {"campaigns:send", "campaigns:approve", "messages:send", "contacts:write", "events:write",
                 "account:write", "domains:write", access.ADMIN_SCOPE, access.SELF_SCOPE}  # fmt: skip
    assert not forbidden & access.AGENT_SCOPES
    assert not {route.scope for door in DOORS for route in door.routes} - access.SCOPES
