"""The promised endpoints, held against the declared and the published ones, in both directions."""

from appliance.accounts import access
from appliance.api.routes import ROUTES
from tests.rules import published
from tests.rules.contract.endpoints import ENDPOINTS, OUTSIDE
from tests.rules.contract.queries import PAGE, PARAMETERS
from tests.rules.contract.words import HEADERS

HERE = {(one.method, one.path): one for one in ENDPOINTS if one.origin != "L"}
LATER = {(one.method, one.path) for one in ENDPOINTS if one.origin == "L"}
DECLARED = {(route.method, route.path): route for route in ROUTES}
PAGING = {name for group, _, name in HEADERS if group == "lists"}


def test_every_promise_is_kept_and_nothing_is_beyond_them() -> None:
    """Declared are exactly the endpoints of the table; what it calls later is not there yet."""
    assert len(ENDPOINTS) == len(HERE) + len(LATER)
    assert set(DECLARED) - set(HERE) == LATER & set(DECLARED) == set(), "take the mark away"
    assert set(HERE) - set(DECLARED) == set()


def test_every_endpoint_is_as_promised() -> None:
    """Statuses, scope, idempotency, bucket and who may are those of the table."""
    for name, promise in HERE.items():
        route = DECLARED[name]
        assert tuple(sorted((route.status, *route.other_statuses))) == promise.statuses, name
        assert (route.scope, route.changes_sending) == (promise.scope, promise.starts), name
        assert route.rate == promise.rate, name
        assert (route.idempotent, route.returns_list) == (promise.key, promise.paged), name


def test_the_document_says_the_same() -> None:
    """The published operations are those of the table with its statuses, keys and scopes, and no others."""
    found = {(method, path): operation for method, path, operation in published.operations()}
    outside = {(method, path): statuses for origin, method, path, statuses in OUTSIDE if origin != "L"}
    later = {(method, path) for origin, method, path, _ in OUTSIDE if origin == "L"}
    ours = {name for name in found if name not in outside and name[1].startswith("/hooks/")}
    unpublished = {("GET", "/openapi.yaml")} - set(found)
    assert set(found) - ours == set(HERE) | set(outside) - unpublished
    assert later & set(found) == set(), "take the mark away"
    for name, operation in found.items():
        statuses = tuple(sorted(int(one) for one in operation["responses"] if one[0] in "23"))
        promised = HERE[name].statuses if name in HERE else outside.get(name, statuses)
        assert statuses == promised, name
    for name, promise in HERE.items():
        assert promise.scope in found[name]["description"] or promise.scope in (
            access.ADMIN_SCOPE,
            access.SELF_SCOPE,
        ), name
        assert ("Idempotency-Key" in published.parameters(found[name], "header")) == promise.key, name


def test_lists_are_paged() -> None:
    """Whatever answers an array takes the page and tells it in the headers, and nothing else does."""
    for name, promise in HERE.items():
        operation = published.operation(" ".join(name))
        success = published.follow(operation["responses"][str(promise.statuses[0])])
        names = set(published.parameters(operation, "query"))
        assert promise.paged == (set(PAGE) <= names) == (set(success.get("headers", {})) >= PAGING), name
        assert promise.paged or not set(PAGE) & names, name


def test_queries_are_as_promised() -> None:
    """Each operation takes exactly the parameters of the table; what it calls later is not there yet."""
    promised: dict[str, set[str]] = {}
    later: dict[str, set[str]] = {}
    for one in PARAMETERS:
        (later if one.origin == "L" else promised).setdefault(one.operation, set()).add(one.name)
    names = {f"{method} {path}" for method, path in HERE}
    assert set(promised) <= names
    for name in names:
        found = set(published.parameters(published.operation(name), "query")) - set(PAGE)
        assert found == promised.get(name, set()), name
        assert not found & later.get(name, set()), f"{name}: take the mark away"
