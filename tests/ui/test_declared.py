"""Pages written down when the executable is built: the same paths, and behind each the handler of its module."""

import marshal
from pathlib import Path
from typing import Any

import pytest

from ui import declared, guard
from ui.blueprint import Pages


def told(blueprint: Pages) -> set[Any]:
    """Return what a blueprint was told of its routes, but for who answers."""
    return {route._replace(handler="", methods=frozenset(route.methods or ())) for route in blueprint._future_routes}


def test_what_is_written_down_is_what_pages_declare() -> None:
    """No path, method or limit is lost on the way, and the order stays."""
    found = declared.blueprints()
    written = [declared._written(*one) for one in marshal.loads(marshal.dumps(declared.table()))]
    assert [(one.name, one.url_prefix) for one in written] == [(one.name, one.url_prefix) for one in found]
    assert [told(one) for one in written] == [told(one) for one in found]
    assert sum(len(one._future_routes) for one in found) > 250


def test_no_page_declares_more_than_is_written_down() -> None:
    """Routes alone are carried: whoever gives a page's blueprint something else has to carry it, too."""
    for one in declared.blueprints():
        ours = {guard.refuse_foreign, guard.add_headers}  # which `ui.mount` gives to all
        assert {future.middleware for future in one._future_middleware} <= ours, one.name
        others = (one._future_listeners, one._future_statics, one._future_exceptions, one._future_signals)
        assert not any(others), one.name


def test_behind_each_path_is_its_own_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first who asks gets what the module declared under that name."""
    monkeypatch.setattr(declared, "_handlers", {})
    for name, blueprint in zip(declared.pages.NAMES, declared.blueprints(), strict=True):
        for route in blueprint._future_routes:
            assert declared._load(name, route.name) is route.handler


def test_every_page_has_its_place() -> None:
    """Each module of a page is named once; one that nobody named would be missing without a word."""
    files = {file.stem for file in Path(declared.pages.__file__).parent.glob("*.py")} - {"__init__"}
    assert sorted(declared.pages.NAMES) == sorted(files)
