"""Named tuples made from one program for each length are those that the library makes."""

import collections
import inspect
import keyword
import pickle
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance import tuples

NAMES = st.lists(
    st.text("abcxyz_ßλ", min_size=1, max_size=5).filter(
        lambda name: name.isidentifier() and not name.startswith("_") and not keyword.iskeyword(name)
    ),
    max_size=9,
    unique=True,
)


class Place(NamedTuple):
    """Where something is."""

    street: str
    town: str = "Graz"


def plain(monkeypatch: pytest.MonkeyPatch, names: list[str], defaults: list[int]) -> Any:
    """Return what the library makes when it is left alone."""
    with monkeypatch.context() as alone:
        alone.delitem(vars(collections), "eval")
        return collections.namedtuple("Some", names, defaults=defaults)


@given(names=NAMES, missing=st.integers(0, 3))
def test_they_are_the_same(names: list[str], missing: int) -> None:
    """Taken by place and by name, with defaults, and refused with the same words."""
    defaults = list(range(max(0, len(names) - missing)))
    with pytest.MonkeyPatch.context() as monkeypatch:
        theirs = plain(monkeypatch, names, defaults)
    ours: Any = collections.namedtuple("Some", names, defaults=defaults)
    assert inspect.signature(ours) == inspect.signature(theirs)
    values = dict(zip(names, range(10, 20), strict=False))
    assert ours(**values) == theirs(**values) == tuple(values.values())
    assert repr(ours(**values)) == repr(theirs(**values))
    for wrong in ({**values, "zzz9": 1}, {}):
        assert _said(ours, wrong) == _said(theirs, wrong)


def _said(made: Any, values: dict[str, int]) -> str | None:
    try:
        made(**values)
    except TypeError as error:
        return str(error)
    return None


def test_a_program_is_compiled_once_for_each_length() -> None:
    """Two of one length share its instructions, each with its own names."""
    tuples._of_length.cache_clear()
    one, other = collections.namedtuple("one", "a b c"), collections.namedtuple("other", "x y z")
    assert tuples._of_length.cache_info().misses == 1
    assert (one(1, 2, c=3), other(x=1, y=2, z=3)) == ((1, 2, 3), (1, 2, 3))


def test_those_of_the_typing_library_are_theirs_too() -> None:
    """With what the class says, and through a pickle."""
    assert Place("Ring 1") == ("Ring 1", "Graz") and Place(street="a", town="b").town == "b"
    assert pickle.loads(pickle.dumps(Place("x"))) == Place("x")
    assert Place.__new__.__code__.co_varnames == ("_cls", "street", "town")
    assert Place("x")._replace(town="Linz")._asdict() == {"street": "x", "town": "Linz"}
