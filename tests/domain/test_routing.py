"""Which handler a path belongs to: as the library finds it, from all routes of the service."""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sanic import Blueprint, Sanic
from sanic.exceptions import MethodNotAllowed, NotFound
from sanic.router import Router
from sanic_routing.route import Route

from appliance.routing import PathRouter, Promised, guards, promise
from tests.kit.routes import declared

METHODS = ("GET", "HEAD", "POST", "PATCH", "DELETE", "OPTIONS")
# What is and what is not a number, and words that stand in paths, too
VALUES = ("7", "-3", "1_0", "٣", " 7", "abc", "search", "runs", "a%20b", "", "..")


@cache
def routers() -> tuple[PathRouter, PathRouter, Router]:
    """Return ours, ours that makes routes when it is asked for them, and the library's, all with these routes."""
    ours, late, theirs = PathRouter(), PathRouter(), Router()
    Sanic("routes", router=late, configure_logging=False)
    for path, methods in declared():
        for router in (ours, theirs):
            router.add(path, methods, _handle, name=f"{path} {methods}", error_format="json")
    late.add("/that/is/made/at/once", ["GET"], _handle)
    late.promise(Promised(path, f"{path} {methods}", methods, _handle, "json") for path, methods in declared())
    for router in (ours, late, theirs):
        router.finalize()  # type: ignore[no-untyped-call]  # untyped in the library
    return ours, late, theirs


async def _handle(request: Any) -> None:
    """Stand for a handler; routes are told apart by their names."""


def found(router: Router, path: str, method: str) -> object:
    """Return which route it is with the values in its path, or why there is none."""
    try:
        route, _, values = router._get(path, method, None)
    except (NotFound, MethodNotAllowed) as error:
        return type(error)
    return route.name.removeprefix("routes."), values


@st.composite
def paths(draw: st.DrawFn) -> str:
    """Make a path that is one of a route, or nearly so."""
    pattern = draw(st.sampled_from(declared()))[0]
    words = sorted({part for path, _ in declared() for part in path.split("/") if not part.startswith("<")})
    other = st.sampled_from([*VALUES, *words])
    parts = [
        draw(st.sampled_from(VALUES)) if part.startswith("<") or draw(st.integers(0, 12)) == 0 else part
        for part in pattern.split("/")[1:]
    ]
    if draw(st.booleans()):
        parts.insert(draw(st.integers(0, len(parts))), draw(other))
    return "/" + "/".join(parts) + draw(st.sampled_from(["", "", "/", "//"]))


@given(paths(), st.sampled_from(METHODS))
def test_it_finds_what_the_library_finds(path: str, method: str) -> None:
    """The same route with the same values, or the same refusal."""
    ours, late, theirs = routers()
    assert found(ours, path, method) == found(late, path, method) == found(theirs, path, method)


def test_thousands_of_slashes_are_no_work() -> None:
    """What only ends in them is found without them; the library asks again for each, until Python gives up."""
    ours, *_ = routers()
    assert found(ours, "/" * 8_000, "GET") == found(ours, "/", "GET")
    assert found(ours, "/contacts" + "/" * 8_000, "GET") == found(ours, "/contacts", "GET")
    assert found(ours, "/" * 8_000 + "contacts", "GET") is NotFound


def test_each_route_is_found_by_its_own_path() -> None:
    """With a number, a word or the rest of a path in the place of its parameters."""
    ours, late, _ = routers()
    for pattern, methods in declared():
        kinds = {"int": "7", "str": "word", "path": "some/file.css"}
        parts = [kinds[part[1:-1].partition(":")[2]] if "<" in part else part for part in pattern.split("/")]
        for method in methods:
            for router in (ours, late):
                name, _ = found(router, "/".join(parts), method)  # type: ignore[misc]  # or it fails
                assert name == f"{pattern} {methods}"


def test_who_asks_with_the_wrong_method_is_told_the_right_ones() -> None:
    """All that the path has, of whatever number of routes they are."""
    router = PathRouter()
    for method in ("GET", "PATCH"):
        router.add("/things/<number:str>", [method], _handle, name=method)
    router.finalize()
    with pytest.raises(MethodNotAllowed) as refused:
        router._get("/things/1", "DELETE", None)
    assert set(refused.value.headers["Allow"].split(", ")) == {"GET", "PATCH"}


async def before(request: Any) -> None:
    """Stand for what each request of one door passes."""


async def after(request: Any, response: Any) -> None:
    """Stand for what each answer of one door passes."""


async def everywhere(request: Any, response: Any = None) -> None:
    """Stand for what all requests and answers pass."""


def at_once(app: "Sanic[Any, Any]") -> None:
    """Add a guarded route with all that a route can be told, the library's way."""
    door = Blueprint("door")
    door.add_route(
        _handle, "/things/<id:int>", ["POST", "PUT"], name="thing", stream=True, ignore_body=True,
        error_format="text", ctx_declared=7,
    )  # fmt: skip
    door.middleware(before, "request")
    door.middleware(after, "response")
    app.blueprint(door)


def late(app: "Sanic[Any, Any]") -> None:
    """Add the same as a promise."""
    one = Promised(
        "/things/<id:int>", "door.thing", ("POST", "PUT"), _handle, "text", streams=True, ignore_body=True,
        context={"declared": 7}, guards=guards(before, after),
    )  # fmt: skip
    promise(app, [one])


def made(add: Callable[["Sanic[Any, Any]"], None]) -> dict[str, Any]:
    """Return all that a server knows of that route, found by each of its methods."""
    vars(_handle).pop("is_stream", None)
    app: Sanic[Any, Any] = Sanic("things", router=PathRouter(), configure_logging=False)
    Sanic.unregister_app(app)  # the name is free again
    app.add_route(_handle, "/first", name="first", error_format="json")
    app.on_request(everywhere, priority=5)
    add(app)
    app.on_response(everywhere)  # type: ignore[no-untyped-call]  # untyped in the library
    app.finalize()
    (route, handler, values), (same, _, _) = (app.router.get("/things/12", method, None) for method in ("PUT", "POST"))
    assert same is route and vars(_handle)["is_stream"] is True
    told = {one: getattr(route, one) for one in Route.__slots__ if one not in ("router", "ctx", "extra", "_params")}
    told["params"] = {index: (one.name, one.label, one.cast) for index, one in route.params.items()}
    extra = dict(vars(route.extra))
    passed = {one: [each.func for each in extra.pop(one)] for one in ("request_middleware", "response_middleware")}
    return told | extra | passed | {"ctx": vars(route.ctx), "values": values, "found": handler}


def test_what_is_made_late_is_what_is_made_at_once() -> None:
    """A promised route has all that the library gives to one that it makes itself, and passes the same by."""
    told = made(late)
    assert told == made(at_once)
    assert (told["request_middleware"], told["response_middleware"]) == ([everywhere, before], [everywhere, after])


def test_a_path_is_promised_once() -> None:
    """Two that answer the same would hide one of them without a word."""
    router = PathRouter()
    router.add("/a/<id:int>", ["GET"], _handle, name="first")
    router.promise([Promised("/a/<number:int>/", "second", ["POST", "GET"], _handle, "json")])
    with pytest.raises(TypeError, match="GET /a/<number:int>/ is there already"):
        router.finalize()


@pytest.mark.parametrize(
    ("path", "options"),
    [
        ("/a/<b:uuid>", {}), ("/a/<b:path>/c", {}), (r"/a/<b:[a-z]+>", {}), ("/a", {"strict_slashes": True}),
        ("/a", {"host": "example.org"}), ("/a/<b:str>", {"unquote": True}),
    ],
)  # fmt: skip
def test_what_it_does_not_know_it_refuses(path: str, options: dict[str, Any]) -> None:
    """A route that it would find wrongly is told to whoever declares it, not to whoever asks for it."""
    router = PathRouter()
    router.add(path, ["GET"], _handle, **options)
    with pytest.raises(TypeError, match="this router"):
        router.finalize()
