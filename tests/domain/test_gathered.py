"""Modules whose code lies in one piece: found there, run once, and found again by whoever asks a second time."""

import importlib
import marshal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.gathered import Gathered

SOURCES = {"carried": (True, "from carried import inner\nname = 'outer'"), "carried.inner": (False, "count = [1]")}


@pytest.fixture(params=["at once", "soon"])
def piece(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Gathered]:
    """A piece with a package and a module in it, ahead of all other finders; their code as it is, or packed."""
    codes = {name: (is_package, compile(text, f"{name}.py", "exec")) for name, (is_package, text) in SOURCES.items()}
    packed = {name: (is_package, marshal.dumps(code)) for name, (is_package, code) in codes.items()}
    data = marshal.dumps(packed if request.param == "soon" else codes)
    finder = Gathered(lambda: data, str(tmp_path))
    sys.meta_path.insert(0, finder)
    yield finder
    sys.meta_path.remove(finder)
    for name in SOURCES:
        sys.modules.pop(name, None)


def test_modules_say_where_their_files_would_lie(piece: Gathered, tmp_path: Path) -> None:
    """A package and what is in it, with the paths that libraries look for their own files by."""
    carried = importlib.import_module("carried")
    assert (carried.name, carried.inner.count) == ("outer", [1])
    assert carried.__file__ == str(tmp_path / "carried" / "__init__.py")
    assert carried.__path__ == [str(tmp_path / "carried")]
    assert carried.inner.__file__ == str(tmp_path / "carried" / "inner.py")
    assert not hasattr(carried.inner, "__path__")
    assert piece.find_spec("elsewhere") is None


def test_what_was_let_go_of_is_read_again(piece: Gathered) -> None:
    """After the first run of a module and after a start nothing is kept; both can be asked for all the same."""
    carried = importlib.import_module("carried")
    piece.forget()
    carried.name = "changed"
    assert importlib.reload(carried).name == "outer"
    del sys.modules["carried.inner"]
    assert importlib.import_module("carried.inner").count == [1]
