"""Pages written down when the executable is built: the same paths, and behind each the handler of its module."""

import marshal
from pathlib import Path
from typing import Any

import pytest
from sanic import Sanic

from appliance.routing import PathRouter
from ui import declared, pages


def test_what_is_told_is_what_the_library_makes_of_a_page() -> None:
    """No path, method or limit of a blueprint is lost on the way to the server, nor to the executable."""
    app: Sanic[Any, Any] = Sanic("told", router=PathRouter(), configure_logging=False)
    for name in pages.NAMES:
        app.blueprint(declared._loaded(name))
    app.finalize()
    theirs = {
        (one.name, f"/{one.path}", one.methods, one.extra.stream, one.extra.ignore_body, one.extra.error_format)
        for one in app.router.routes
    }
    ours = {
        (app.generate_name(one.name), one.path, frozenset(one.methods), one.streams, one.ignore_body, one.error_format)
        for one in declared.routes()
    }
    assert ours == theirs and len(ours) > 250
    table = declared.table()
    assert len(table) == len(ours)
    assert [declared.Declared(*one) for one in marshal.loads(marshal.dumps(list(map(tuple, table))))] == table


def test_no_page_declares_more_than_is_told() -> None:
    """Routes alone are carried: whoever gives a page's blueprint something else has to carry it, too."""
    for name in pages.NAMES:
        one = declared._loaded(name)
        others = (
            one._future_middleware, one._future_listeners, one._future_statics, one._future_exceptions,
            one._future_signals,
        )  # fmt: skip
        assert not any(others), name
        assert not any(route.strict_slashes or route.host or route.version for route in one._future_routes), name


def test_behind_each_path_is_its_own_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first who asks gets what the module declared under that name."""
    monkeypatch.setattr(declared, "_handlers", {})
    for name in pages.NAMES:
        declared._load(name)
        for route in declared._loaded(name)._future_routes:
            assert declared._handlers[route.name] is route.handler


def test_every_page_has_its_place() -> None:
    """Each module of a page is named once; one that nobody named would be missing without a word."""
    files = {file.stem for file in Path(pages.__file__).parent.glob("*.py")} - {"__init__"}
    assert sorted(pages.NAMES) == sorted(files)
