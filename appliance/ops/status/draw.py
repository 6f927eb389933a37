"""Draws a status for a terminal: as wide as that is, with plain signs where it knows no others."""

import re
import unicodedata
from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from appliance.ops.status.look import Day, Queue, Status, Task

_SIGNS = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
_KINDS = {"send": "Sends", "import": "Imports", "export": "Exports", "act": "Many people at once"}
_NOTHING = {"send": "nothing is being sent", "import": "no file is being read in", "export": "no file is being sent"}
_CHANNELS = {"email": "Email", "sms": "SMS"}
_MIN_BAR, _MAX_BAR, _MAX_NAME = 8, 30, 28
_HEAD = 10  # of the short words at the beginning of a line
BOLD, DIM, GREEN, YELLOW = "1", "2", "32", "33"


class Screen(NamedTuple):
    """What it is drawn on: its columns, whether it knows colours, and whether it knows more than ASCII."""

    columns: int = 80
    colours: bool = False
    signs: bool = True

    def styled(self, text: str, style: str) -> str:
        """Put a style around a text, where there are any."""
        return f"\x1b[{style}m{text}\x1b[0m" if self.colours and text else text


def lines(status: Status, screen: Screen) -> list[str]:
    """Return the lines of a status, none longer than the screen is wide."""
    found = [*_head(status, screen), ""]
    for kind, title in _KINDS.items():
        some = [one for one in status.tasks if one.kind == kind]
        if some or kind in _NOTHING:
            found.append(screen.styled(title, BOLD))
            found += [_task(one, screen) for one in some] or [_fit(f"  {_NOTHING[kind]}", screen, DIM)]
    found += ["", screen.styled("Queue", BOLD)]
    found += [_fit(f"  {_CHANNELS[one.channel]:<{_HEAD}}{_waits(one)}", screen) for one in status.queue]
    found += [screen.styled("Today", BOLD)]
    found += [_fit(f"  {_CHANNELS[one.channel]:<{_HEAD}}{_happened(one)}", screen) for one in status.today]
    found += [screen.styled("Storage", BOLD), _fit(f"  {_room(status)}", screen)]
    return found


def _head(status: Status, screen: Screen) -> Iterator[str]:
    here = status.service
    words = f"runs as process {here.process}, {here.state}" if here.running else "the service is not running"
    if here.running and here.state == "ready":
        words = f"runs as process {here.process}, ready on {here.listen}"
    yield _fit(f"Campanero {status.version}: {words}", screen, GREEN if here.state == "ready" else YELLOW)
    yield _fit(plain(status.data_dir), screen, DIM)
    for one in status.stopped:
        yield _fit(plain(one), screen, YELLOW)


def _task(task: Task, screen: Screen) -> str:
    room = min(_MAX_NAME, max(10, screen.columns // 4))
    name = _padded(cut(plain(task.name), room, screen.signs), room)
    said = [*progress(task)]
    # What comes first is told first, and what has no room not at all
    while len(said) > 1 and room + _width("  ".join(said)) + 12 > screen.columns:
        said.pop()
    words = "  ".join(said)
    bar = min(_MAX_BAR, screen.columns - room - _width(words) - 12)
    if task.total and bar >= _MIN_BAR:
        filled = min(bar, bar * task.done // task.total)
        on, off = "█░" if screen.signs else "#."
        drawn = screen.styled(on * filled, GREEN) + screen.styled(off * (bar - filled), DIM)
        return f"  {name}  {drawn} {percent(task):>4}  {words}"
    return _fit(f"  {name}  {percent(task) if task.total else ''}  {words}".rstrip(), screen)


def percent(task: Task) -> str:
    """Return how much is done of a task that knows its end; 100 % is only what is done."""
    if not task.total:
        return ""
    return f"{min(99, 100 * task.done // task.total) if task.done < task.total else 100} %"


def progress(task: Task) -> Iterator[str]:
    """Yield what is to be said of a task behind its bar."""
    if task.total is not None:
        yield f"{task.done:,} of {task.total:,}"
    if task.per_second:
        yield f"{task.per_second:,.1f}/s" if task.per_second < 10 else f"{task.per_second:,.0f}/s"
    if task.left_seconds is not None and task.left_seconds > 0:
        yield f"{span(task.left_seconds)} left"
    if task.state not in ("sending", "working"):
        yield task.state if task.state != "holding" else "held"
    if task.words:
        yield _clock(plain(task.words))


def _waits(queue: Queue) -> str:
    found = []
    if queue.due:
        found.append(f"{queue.due:,} due (the oldest for {span(queue.oldest_due_seconds)})")
    if queue.later:
        found.append(f"{queue.later:,} later")
    if queue.paused:
        found.append(f"{queue.paused:,} paused")
    if queue.in_hand:
        found.append(f"{queue.in_hand:,} in hand")
    if queue.last_minute:
        found.append(f"{queue.last_minute:,} sent in the last minute")
    return ", ".join(found) or "nothing waits"


def _happened(day: Day) -> str:
    names = ("sent", "delivered", "bounced", "failed", "complained", "opened", "clicked", "unsubscribed")
    return ", ".join(f"{number:,} {name}" for name in names if (number := getattr(day, name))) or "nothing yet"


def _room(status: Status) -> str:
    here = status.storage
    low = "; nothing is sent with so little" if here.free_bytes < here.least_free_bytes else ""
    return f"database {size(here.database_bytes)}, its log {size(here.wal_bytes)}, {size(here.free_bytes)} free{low}"


def size(number: float) -> str:
    """Say so many bytes."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if number >= 10 or unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def span(seconds: float) -> str:
    """Return how long something takes, as exactly as anybody wants to know."""
    whole = int(seconds)
    if whole < 60:
        return f"{max(whole, 1)} s"
    if whole < 3600:
        return f"{-(-whole // 60)} min"
    if whole < 48 * 3600:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86_400} days"


def _clock(words: str) -> str:
    """Say a moment by the clock of this machine."""
    found = re.search(r"\d{4}-\d\d-\d\dT[\d:.]+Z", words)
    if found is None:
        return words
    return words.replace(found[0], f"{datetime.fromisoformat(found[0]).astimezone():%H:%M}")


def plain(text: str) -> str:
    """Take out what a terminal would obey: names are written by people, and so could be commands to it."""
    return " ".join(_SIGNS.sub(" ", text).split())


def cut(text: str, room: int, signs: bool = True) -> str:
    """Shorten a text to so many columns."""
    if _width(text) <= room:
        return text
    end = "…" if signs else "..."
    while text and _width(text) + len(end) > room:
        text = text[:-1]
    return text.rstrip() + end


def _padded(text: str, room: int) -> str:
    return text + " " * (room - _width(text))


def _width(text: str) -> int:
    """Return how many columns a text takes: signs of East Asia take two, combining ones none."""
    return sum(
        0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in text
    )


def _fit(text: str, screen: Screen, style: str = "") -> str:
    text = cut(text, screen.columns, screen.signs)
    return screen.styled(text, style) if style else text
