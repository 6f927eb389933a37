"""The table of endpoints agrees with the declared and the published operations."""

from appliance.accounts import access
from appliance.api.routes import ROUTES
from tests.rules import published
from tests.rules.contract.endpoints import ENDPOINTS, OUTSIDE
from tests.rules.contract.queries import PAGE, PARAMETERS
from tests.rules.contract.words import HEADERS

HERE = {(endpoint.method, endpoint.path): endpoint for endpoint in ENDPOINTS if endpoint.origin != "L"}
LATER = {(endpoint.method, endpoint.path) for endpoint in ENDPOINTS if endpoint.origin == "L"}
DECLARED = {(route.method, route.path): route for route in ROUTES}
PAGING = {name for group, _, name in HEADERS if group == "lists"}


def test_declared_endpoints_are_those_of_the_table() -> None:
    """Exactly the endpoints of the table are declared, without those marked as later."""
    assert len(ENDPOINTS) == len(HERE) + len(LATER)
    assert set(DECLARED) - set(HERE) == LATER & set(DECLARED) == set(), "take the mark away"
    assert set(HERE) - set(DECLARED) == set()


def test_endpoints_match_the_table() -> None:
    """Statuses, scope, idempotency, request class and paging are those of the table."""
    for name, promise in HERE.items():
        route = DECLARED[name]
        assert tuple(sorted((route.status, *route.other_statuses))) == promise.statuses, name
        assert (route.scope, route.changes_sending) == (promise.scope, promise.starts), name
        assert route.rate == promise.rate, name
        assert (route.idempotent, route.returns_list) == (promise.key, promise.paged), name


def test_published_operations_match_the_table() -> None:
    """The document has exactly these operations with their statuses, keys and scopes."""
    results = {(method, path): operation for method, path, operation in published.operations()}
    outside = {(method, path): statuses for origin, method, path, statuses in OUTSIDE if origin != "L"}
    later = {(method, path) for origin, method, path, _ in OUTSIDE if origin == "L"}
    ours = {name for name in results if name not in outside and name[1].startswith("/hooks/")}
    unpublished = {("GET", "/openapi.yaml")} - set(results)
    assert set(results) - ours == set(HERE) | set(outside) - unpublished
    assert later & set(results) == set(), "take the mark away"
    for name, operation in results.items():
        statuses = tuple(sorted(int(response) for response in operation["responses"] if response[0] in "23"))
        promised = HERE[name].statuses if name in HERE else outside.get(name, statuses)
        assert statuses == promised, name
    for name, promise in HERE.items():
        assert promise.scope in results[name]["description"] or promise.scope in (
            access.ADMIN_SCOPE,
            access.SELF_SCOPE,
        ), name
        assert ("Idempotency-Key" in published.parameters(results[name], "header")) == promise.key, name


def test_lists_are_paged() -> None:
    """Exactly the operations that return an array take page parameters and document the headers."""
    for name, promise in HERE.items():
        operation = published.operation(" ".join(name))
        success = published.resolve(operation["responses"][str(promise.statuses[0])])
        names = set(published.parameters(operation, "query"))
        assert promise.paged == (set(PAGE) <= names) == (set(success.get("headers", {})) >= PAGING), name
        assert promise.paged or not set(PAGE) & names, name


def test_query_parameters_match_the_table() -> None:
    """Each operation takes exactly the parameters of the table."""
    promised: dict[str, set[str]] = {}
    later: dict[str, set[str]] = {}
    for parameter in PARAMETERS:
        (later if parameter.origin == "L" else promised).setdefault(parameter.operation, set()).add(parameter.name)
    names = {f"{method} {path}" for method, path in HERE}
    assert set(promised) <= names
    for name in names:
        query_names = set(published.parameters(published.operation(name), "query")) - set(PAGE)
        assert query_names == promised.get(name, set()), name
        assert not query_names & later.get(name, set()), f"{name}: take the mark away"
