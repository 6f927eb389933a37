"""What charts draw: columns of hours or days, steps of a funnel, and scales that begin at nothing."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from ui import words

_HOURS, _MIN_DAYS = 48, 7


class Column(NamedTuple):
    """One column: what stands below it, its moment in full, and how many opened and clicked."""

    label: str
    title: str
    opened: int
    clicked: int


class Step(NamedTuple):
    """One step of a funnel: its name, how many, what share of the first step, where it leads, and what is usual."""

    label: str
    many: int
    whole: int
    href: str = ""
    usual: float | None = None
    note: str = ""


def is_long(buckets: Sequence[Any]) -> bool:
    """Return whether there is more to show than the first two days."""
    return len(buckets) > _HOURS


def columns(buckets: Sequence[Any], by: str) -> list[Column]:
    """Return the columns of first opens and clicks: by hour those of one or two days, by day all since it began."""
    if not buckets:
        return []
    begin = words.moment(buckets[0].from_) or 0
    if by == "day":
        return _days(buckets, begin)
    span = 24 if len(buckets) <= 24 else _HOURS
    made = []
    for index in range(span):
        at = begin + index * 3_600_000
        here = buckets[index] if index < len(buckets) else None
        label = words.clock_time(at) if span == 24 else f"{words.local(at).strftime('%a')} {words.clock_time(at)}"
        made.append(Column(label, words.when(at), here.opened if here else 0, here.clicked if here else 0))
    return made


def _days(buckets: Sequence[Any], begin: int) -> list[Column]:
    """Sum by days of 24 hours since it began: the first two are of hours, each further bucket is one."""
    sums: dict[int, list[int]] = {}
    for index, one in enumerate(buckets):
        day = index // 24 if index < _HOURS else index - _HOURS + 2
        have = sums.setdefault(day, [0, 0])
        have[0], have[1] = have[0] + one.opened, have[1] + one.clicked
    made = []
    for day in range(max(len(sums), _MIN_DAYS)):
        at = begin + day * 86_400_000
        opened, clicked = sums.get(day, (0, 0))
        local = words.local(at)
        made.append(Column(f"{local.day} {local.strftime('%b')}", f"24 hours from {words.when(at)}", opened, clicked))
    return made


def top(most: int) -> int:
    """Return a round number at or above the largest one, for the end of a scale."""
    if most <= 5:
        return max(most, 1)
    power = 1
    while power * 10 < most:
        power *= 10
    return next(step * power for step in (1, 2, 3, 4, 5, 6, 8, 10) if step * power >= most)


def marks(labels: Sequence[str]) -> tuple[str, str, str]:
    """Return what stands below the first, the middle and the last column."""
    return labels[0], labels[len(labels) // 2], labels[-1]
