"""Parametrised tests that run with a sample of their values, and with all of them with `--full`."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import pytest

T = TypeVar("T")
# Whether the tests run with `--full`; set before test modules are imported
is_full = False


def sampled(values: Iterable[Any], sample: Sequence[Any]) -> list[Any]:
    """Return all values for `pytest.mark.parametrize`; those outside of `sample` run only with `--full`.

    Raises ValueError if a value of the sample is none of the values.
    """
    values = list(values)
    if unknown := [value for value in sample if value not in values]:
        raise ValueError(f"not among the values: {unknown}")
    return [value if value in sample else _with_full(value) for value in values]


def every_nth(values: Iterable[Any], step: int, first: int = 0) -> list[Any]:
    """Return all values for `pytest.mark.parametrize`; those other than every `step`-th run only with `--full`."""
    return [value if at % step == first else _with_full(value) for at, value in enumerate(values)]


def full_only(*values: Any) -> Any:
    """Return a parameter, or one of several arguments, for `pytest.mark.parametrize` that runs only with `--full`."""
    return pytest.param(*values, marks=pytest.mark.full)


def _with_full(value: Any) -> Any:
    """Return a parameter for a value; a plain tuple holds the values of several arguments."""
    return full_only(*value) if type(value) is tuple else full_only(value)


def thin_out(values: Iterable[T], step: int, first: int = 0) -> list[T]:
    """Return every `step`-th value for a loop in a test; all values with `--full`."""
    return list(values) if is_full else list(values)[first::step]


def examples(count: int, *, full: int) -> int:
    """Return how many examples Hypothesis generates for a test: `count`, or `full` with `--full`."""
    return full if is_full else count
