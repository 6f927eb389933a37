"""Build the data of charts (columns by hour or day, funnels, scales), and draw QR codes."""

import io
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Literal, NamedTuple

import segno

from appliance.audience.contacts import statuses
from appliance.core import clock, i18n
from appliance.core.cache import CostAwareCache
from appliance.core.i18n import gettext, gettext_noop
from ui import formats

_HOURS, _MIN_DAYS = 48, 7


class Column(NamedTuple):
    """One column of a chart: its axis label, its title with the full time, and its numbers of opens and clicks."""

    label: str
    title: str
    opened: int
    clicked: int


class FunnelStep(NamedTuple):
    """One step of a funnel: its label, its number, and the number that makes up 100 %.

    `href` leads to the contacts, and `usual_rate` is the rate of the account's earlier campaigns or None. `note` is
    shown beside the label, and `description` below the bar.
    """

    label: str
    number: int
    total: int
    href: str = ""
    usual_rate: float | None = None
    note: str = ""
    description: str = ""


def has_daily_buckets(buckets: Sequence[Any]) -> bool:
    """Return whether a timeline has buckets after its 48 hourly buckets."""
    return len(buckets) > _HOURS


def build_columns(buckets: Sequence[Any], by: str) -> list[Column]:
    """Return the columns of a timeline of first opens and clicks.

    `by` is `hour` for the first 24 hours (48 if there are more buckets), or `day` for the whole time.
    """
    if not buckets:
        return []
    begin = formats.parse_time(buckets[0].from_) or 0
    if by == "day":
        return _daily_columns(buckets, begin)
    span = 24 if len(buckets) <= 24 else _HOURS
    columns = []
    for index in range(span):
        at = begin + index * 3_600_000
        current = buckets[index] if index < len(buckets) else None
        label = formats.clock_time(at) if span == 24 else i18n.format_date(formats.local_time(at), "EHm")
        columns.append(
            Column(label, formats.when(at), current.opened if current else 0, current.clicked if current else 0)
        )
    return columns


def _daily_columns(buckets: Sequence[Any], begin: int) -> list[Column]:
    """Return a column for each 24 hours, at least `_MIN_DAYS`.

    The first 48 buckets cover an hour each and are added up; each further bucket covers a day.
    """
    sums: dict[int, list[int]] = {}
    for index, bucket in enumerate(buckets):
        day = index // 24 if index < _HOURS else index - _HOURS + 2
        present = sums.setdefault(day, [0, 0])
        present[0], present[1] = present[0] + bucket.opened, present[1] + bucket.clicked
    columns = []
    for day in range(max(len(sums), _MIN_DAYS)):
        at = begin + day * clock.DAY_MS
        opened, clicked = sums.get(day, (0, 0))
        label = i18n.format_date(formats.local_time(at), "MMMd")
        columns.append(Column(label, gettext("24 hours from %(time)s", time=formats.when(at)), opened, clicked))
    return columns


# The growth of the audience: contacts join by subscribing and leave by unsubscribing.
# The ranges by their number of days; the first one is the default.
GROWTH_RANGES = {30: gettext_noop("30 days"), 7: gettext_noop("7 days"), 90: gettext_noop("90 days"),
                 365: gettext_noop("12 months")}  # fmt: skip
_growth_cache: CostAwareCache[statuses.StatusChanges] = CostAwareCache(min_age_seconds=5, cost_factor=60)


class GrowthBar(NamedTuple):
    """One period of the growth chart: its label, and how many contacts became subscribed and unsubscribed."""

    label: str
    joined: int
    left: int


def build_growth(account_id: int, days: int) -> list[GrowthBar]:
    """Return the bars of the last `days` days: one for each day, or for each week of 90 days or month of 365."""
    today = formats.local_time(clock.now_ms()).replace(hour=0, minute=0, second=0, microsecond=0)
    if days == 365:
        months = [divmod(today.year * 12 + today.month - 1 + step, 12) for step in range(-11, 2)]
        starts = [today.replace(year=year, month=month + 1, day=1) for year, month in months]
        labels = [i18n.format_date(start, "yMMM") for start in starts[:-1]]
    else:
        step = 7 if days == 90 else 1
        count = -(-days // step)
        starts = [today + timedelta(days=1 - step * (count - index)) for index in range(count + 1)]
        labels = [i18n.format_date(start, "MMMd") for start in starts[:-1]]
        if step == 7:
            labels = [gettext("Week from %(day)s", day=label) for label in labels]
    bounds = [round(start.timestamp() * 1000) for start in starts]
    changes = _growth_cache.get((account_id, *bounds), lambda: statuses.count_changes(account_id, bounds))
    return [GrowthBar(*values) for values in zip(labels, changes.joined, changes.left, strict=True)]


def scale_top(limit: int) -> int:
    """Return a round number at or above `limit`, the largest value, as the end of a scale."""
    if limit <= 5:
        return max(limit, 1)
    power = 1
    while power * 10 < limit:
        power *= 10
    tops = (step * power // 10 for step in (10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100))
    return next(top for top in tops if top >= limit)


def axis_labels(labels: Sequence[str]) -> tuple[str, str, str]:
    """Return the labels of the first, the middle and the last column of a chart."""
    return labels[0], labels[len(labels) // 2], labels[-1]


# QR codes.
# Pixels per module in a PNG, enough for a poster.
PNG_SCALE = 16
# The quiet zone around a QR code in modules (ISO/IEC 18004, 9.1).
BORDER = 4


class QrDrawing(NamedTuple):
    """A QR code as an SVG path of its dark modules; `side` is its width and height in modules."""

    side: int
    path: str


def draw_qr(text: str) -> QrDrawing:
    """Return the QR code of a text as an SVG path, without the quiet zone."""
    rows = [list(row) for row in _make_qr(text).matrix]
    dark = [f"M{x} {y}h1v1h-1z" for y, row in enumerate(rows) for x, is_dark in enumerate(row) if is_dark]
    return QrDrawing(len(rows), "".join(dark))


def render_qr_file(text: str, kind: Literal["svg", "png"]) -> bytes:
    """Return the QR code of a text as an SVG or PNG file, with the quiet zone that scanners need."""
    out = io.BytesIO()
    _make_qr(text).save(out, kind=kind, scale=PNG_SCALE, border=BORDER, dark="#000", light="#fff")
    return out.getvalue()


def _make_qr(text: str) -> segno.QRCode:

    # Level Q: a quarter of the code may be damaged. Micro QR is not used, because many cameras do not read it.
    return segno.make_qr(text, error="q")
