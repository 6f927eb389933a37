"""Which handler a path belongs to: as the library finds it, from all routes of the service."""

import json
import subprocess
import sys
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sanic.exceptions import MethodNotAllowed, NotFound
from sanic.router import Router

from appliance.routing import PathRouter
from tests.kit.server import Server

_TELL = (
    "import json; from appliance import server; from appliance.settings import Config;"
    "print(json.dumps([['/' + one.path, sorted(one.methods)] for one in server.build(Config()).router.routes]))"
)
METHODS = ("GET", "HEAD", "POST", "PATCH", "DELETE", "OPTIONS")
# What is and what is not a number, and words that stand in paths, too
VALUES = ("7", "-3", "1_0", "٣", " 7", "abc", "search", "runs", "a%20b", "", "..")


@cache
def declared() -> list[tuple[str, list[str]]]:
    """Return path and methods of every route of the service."""
    done = subprocess.run([sys.executable, "-c", _TELL], env=Server().env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [(path, methods) for path, methods in json.loads(done.stdout)]


@cache
def routers() -> tuple[PathRouter, Router]:
    """Return ours and the library's, both with these routes."""
    ours, theirs = PathRouter(), Router()
    for router in (ours, theirs):
        for path, methods in declared():
            router.add(path, methods, _handle, name=f"{path} {methods}", error_format="json")
        router.finalize()  # type: ignore[no-untyped-call]  # untyped in the library
    return ours, theirs


async def _handle(request: Any) -> None:
    """Stand for a handler; routes are told apart by their names."""


def found(router: Router, path: str, method: str) -> object:
    """Return which route it is with the values in its path, or why there is none."""
    try:
        route, _, values = router._get(path, method, None)
    except (NotFound, MethodNotAllowed) as error:
        return type(error)
    return route.name, values


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
    ours, theirs = routers()
    assert found(ours, path, method) == found(theirs, path, method)


def test_thousands_of_slashes_are_no_work() -> None:
    """What only ends in them is found without them; the library asks again for each, until Python gives up."""
    ours, _ = routers()
    assert found(ours, "/" * 8_000, "GET") == found(ours, "/", "GET")
    assert found(ours, "/contacts" + "/" * 8_000, "GET") == found(ours, "/contacts", "GET")
    assert found(ours, "/" * 8_000 + "contacts", "GET") is NotFound


def test_each_route_is_found_by_its_own_path() -> None:
    """With a number, a word or the rest of a path in the place of its parameters."""
    ours, _ = routers()
    for pattern, methods in declared():
        kinds = {"int": "7", "str": "word", "path": "some/file.css"}
        parts = [kinds[part[1:-1].partition(":")[2]] if "<" in part else part for part in pattern.split("/")]
        for method in methods:
            name, _ = found(ours, "/".join(parts), method)  # type: ignore[misc]  # or it fails
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
