"""Three hundred named tuples are made at a start, and the library compiles a program for each, alike but for the names.

One is compiled for each length, and given the names: a fortieth of a start.
"""

import collections
from functools import cache
from types import CodeType, FunctionType

_PLACES = "lambda _cls, {0}: _tuple_new(_cls, ({0}))"


@cache
def _of_length(length: int) -> CodeType:
    names = ", ".join(f"_{number}" for number in range(length)) + ("," if length == 1 else "")
    made: FunctionType = eval(_PLACES.format(names))  # noqa: S307 - nothing in it comes from outside
    return made.__code__


def _evaluate(text: str, namespace: dict[str, object]) -> object:
    """Do what `eval` does, for the one text that the library has it evaluate quicker."""
    listed = text.removeprefix("lambda _cls, ").partition(":")[0]
    names = listed.replace(",", " ").split()
    if not names or text != _PLACES.format(listed):
        return eval(text, namespace)  # noqa: S307 - as the library does
    return FunctionType(_of_length(len(names)).replace(co_varnames=("_cls", *names)), namespace)


def quicken() -> None:
    """Let named tuples be made so from here on."""
    vars(collections)["eval"] = _evaluate
