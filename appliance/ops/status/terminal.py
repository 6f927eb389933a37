"""Output of the command `status`: a screen that is printed once or refreshed, lines of text, or JSON."""

import os
import re
import shutil
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import NamedTuple, TextIO

import msgspec

from appliance.ops.status import Day, Queue, Status, Task

_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
_TASK_TITLES = {
    "send": "Sends",
    "import": "Imports",
    "export": "Exports",
    "act": "Bulk actions",
    "copy": "Copies",
    "proof": "Test restores",
}
_EMPTY_MESSAGES = {
    "send": "nothing is being sent",
    "import": "no import is running",
    "export": "no export is running",
}
_CHANNEL_NAMES = {"email": "Email", "sms": "SMS"}
_MIN_BAR_COLUMNS, _MAX_BAR_COLUMNS, _MAX_NAME_COLUMNS = 8, 30, 28
_LABEL_COLUMNS = 10  # the width of the column with channel names
BOLD, DIM, GREEN, YELLOW = "1", "2", "32", "33"


class Screen(NamedTuple):
    """The properties of the output: its width in columns, and whether it supports colours and Unicode."""

    columns: int = 80
    has_colours: bool = False
    has_unicode: bool = True

    def styled(self, text: str, style: str) -> str:
        """Return the text in a style such as BOLD, or unchanged if the screen supports no colours."""
        return f"\x1b[{style}m{text}\x1b[0m" if self.has_colours and text else text


def render_lines(status: Status, screen: Screen) -> list[str]:
    """Return the lines that show a status, each cut to the width of the screen."""
    lines = [*_render_header(status, screen), ""]
    for kind, title in _TASK_TITLES.items():
        tasks = [task for task in status.tasks if task.kind == kind]
        if tasks or kind in _EMPTY_MESSAGES:
            lines.append(screen.styled(title, BOLD))
            lines += [_render_task(task, screen) for task in tasks] or [
                _fit_to_screen(f"  {_EMPTY_MESSAGES[kind]}", screen, DIM)
            ]
    lines += ["", screen.styled("Queue", BOLD)]
    lines += [
        _fit_to_screen(f"  {_CHANNEL_NAMES[queue.channel]:<{_LABEL_COLUMNS}}{_describe_queue(queue)}", screen)
        for queue in status.queue
    ]
    lines += [screen.styled("Today", BOLD)]
    lines += [
        _fit_to_screen(f"  {_CHANNEL_NAMES[day.channel]:<{_LABEL_COLUMNS}}{_describe_day(day)}", screen)
        for day in status.today
    ]
    if status.submission.listen:
        words = f"{', '.join(status.submission.listen)}: {status.submission.today:,} emails today"
        lines += [screen.styled("SMTP submission", BOLD), _fit_to_screen(f"  {words}", screen)]
    if status.copies.configured:
        lines += [screen.styled("Copies on another machine", BOLD), _render_copies(status, screen)]
    lines += [screen.styled("Storage", BOLD), _fit_to_screen(f"  {_describe_storage(status)}", screen)]
    return lines


def _render_header(status: Status, screen: Screen) -> Iterator[str]:
    service = status.service
    words = f"runs as process {service.process}, {service.state}" if service.running else "the service is not running"
    if service.running and service.state == "ready":
        words = f"runs as process {service.process}, ready on {service.listen}"
    yield _fit_to_screen(f"Campanero {status.version}: {words}", screen, GREEN if service.state == "ready" else YELLOW)
    yield _fit_to_screen(strip_control_characters(status.data_dir), screen, DIM)
    for reason in status.stopped:
        yield _fit_to_screen(strip_control_characters(reason), screen, YELLOW)


def _render_task(task: Task, screen: Screen) -> str:
    room = min(_MAX_NAME_COLUMNS, max(10, screen.columns // 4))
    name = _pad(truncate(strip_control_characters(task.name), room, screen.has_unicode), room)
    details = [*describe_progress(task)]
    # If the line would be too long, details are dropped from the end, but never the first one.
    while len(details) > 1 and room + _measure_width("  ".join(details)) + 12 > screen.columns:
        details.pop()
    words = "  ".join(details)
    bar = min(_MAX_BAR_COLUMNS, screen.columns - room - _measure_width(words) - 12)
    if task.total and bar >= _MIN_BAR_COLUMNS:
        filled = min(bar, bar * task.done // task.total)
        filled_sign, empty_sign = "█░" if screen.has_unicode else "#."
        drawn = screen.styled(filled_sign * filled, GREEN) + screen.styled(empty_sign * (bar - filled), DIM)
        return f"  {name}  {drawn} {format_percent(task):>4}  {words}"
    return _fit_to_screen(f"  {name}  {format_percent(task) if task.total else ''}  {words}".rstrip(), screen)


def format_percent(task: Task) -> str:
    """Return the progress as `42 %`, or an empty string if the total is unknown or 0.

    `100 %` appears only for a complete task, not by rounding.
    """
    if not task.total:
        return ""
    return f"{min(99, 100 * task.done // task.total) if task.done < task.total else 100} %"


def describe_progress(task: Task) -> Iterator[str]:
    """Yield the texts that follow the progress bar of a task: count, speed, remaining time, state and details."""
    if task.total is not None:
        yield f"{task.done:,} of {task.total:,}"
    if task.per_second:
        yield f"{task.per_second:,.1f}/s" if task.per_second < 10 else f"{task.per_second:,.0f}/s"
    if task.left_seconds is not None and task.left_seconds > 0:
        yield f"{format_duration(task.left_seconds)} left"
    if task.state not in ("sending", "working"):
        yield task.state if task.state != "holding" else "held"
    if task.words:
        yield _localize_time(strip_control_characters(task.words))


def _describe_queue(queue: Queue) -> str:
    parts = []
    if queue.due:
        parts.append(f"{queue.due:,} due (the oldest for {format_duration(queue.oldest_due_seconds)})")
    if queue.later:
        parts.append(f"{queue.later:,} later")
    if queue.paused:
        parts.append(f"{queue.paused:,} paused")
    if queue.in_hand:
        parts.append(f"{queue.in_hand:,} in progress")
    if queue.last_minute:
        parts.append(f"{queue.last_minute:,} sent in the last minute")
    return ", ".join(parts) or "empty"


def _describe_day(day: Day) -> str:
    names = ("sent", "delivered", "bounced", "failed", "complained", "opened", "clicked", "unsubscribed")
    return ", ".join(f"{number:,} {name}" for name in names if (number := getattr(day, name))) or "nothing yet"


def _render_copies(status: Status, screen: Screen) -> str:
    copies = status.copies
    age = "none yet" if copies.age_seconds is None else f"the last is {format_duration(copies.age_seconds)} old"
    proof = {"": "not tested yet", "succeeded": "restored for a test"}.get(copies.proof, "the test restore failed")
    failure = f", the last attempt failed: {strip_control_characters(copies.failure)}" if copies.failure else ""
    is_good = not (copies.late or copies.failure) and copies.proof in ("", "succeeded")
    return _fit_to_screen(f"  {age}, {proof}{failure}", screen, "" if is_good else YELLOW)


def _describe_storage(status: Status) -> str:
    storage = status.storage
    low = "; too little to send" if storage.free_bytes < storage.least_free_bytes else ""
    database, log, free = map(format_bytes, (storage.database_bytes, storage.wal_bytes, storage.free_bytes))
    return f"database {database}, its log {log}, {free} free{low}"


def format_bytes(number: float) -> str:
    """Return a number of bytes as text with a decimal unit: `512 B`, `1.5 kB`, `20 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if number >= 10 or unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def format_duration(seconds: float) -> str:
    """Return a duration as text, such as `40 s`, `12 min` (rounded up), `3 h 20 min` or `5 days`."""
    total_seconds = int(seconds)
    if total_seconds < 60:
        return f"{max(total_seconds, 1)} s"
    if total_seconds < 3600:
        return f"{-(-total_seconds // 60)} min"
    if total_seconds < 48 * 3600:
        return f"{total_seconds // 3600} h {total_seconds % 3600 // 60} min"
    return f"{total_seconds // 86_400} days"


def _localize_time(words: str) -> str:
    """Return the text with its first ISO time replaced by the time of day in the local zone."""
    match = re.search(r"\d{4}-\d\d-\d\dT[\d:.]+Z", words)
    if match is None:
        return words
    return words.replace(match[0], f"{datetime.fromisoformat(match[0]).astimezone():%H:%M}")


def strip_control_characters(text: str) -> str:
    """Return the text with control characters and runs of spaces replaced by one space.

    A name may contain control characters, which a terminal would interpret.
    """
    return " ".join(_CONTROL_CHARACTERS.sub(" ", text).split())


def truncate(text: str, room: int, has_unicode: bool = True) -> str:
    """Shorten a text to `room` columns; a shortened text ends in `…`, or in `...` without `has_unicode`."""
    if _measure_width(text) <= room:
        return text
    end = "…" if has_unicode else "..."
    while text and _measure_width(text) + len(end) > room:
        text = text[:-1]
    return text.rstrip() + end


def _pad(text: str, room: int) -> str:
    return text + " " * (room - _measure_width(text))


def _measure_width(text: str) -> int:
    """Return how many columns a text takes: two for a wide East Asian character, none for a combining character."""
    return sum(
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in text
    )


def _fit_to_screen(text: str, screen: Screen, style: str = "") -> str:
    text = truncate(text, screen.columns, screen.has_unicode)
    return screen.styled(text, style) if style else text


_REFRESH_SECONDS = 1.0
# The pause after a refresh is at least this multiple of its duration, so that `--watch` hardly slows down the service.
_REST_FACTOR = 10
_HIDE_CURSOR, _SHOW_CURSOR, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[?25l", "\x1b[?25h", "\x1b[K", "\x1b[J"


def show_status(read_status: Callable[[], Status], watch: bool, as_json: bool, out: TextIO | None = None) -> None:
    """Print the status that `read_status` returns to `out` (default: stdout), repeatedly until Ctrl C with `watch`.

    With `as_json`, each status is one line of JSON. With `watch`, a terminal is redrawn in place, and any other output
    gets a line for each entry that changed.
    """
    out = out or sys.stdout
    if as_json:
        _repeat(read_status, watch, lambda status: print(msgspec.json.encode(status).decode(), file=out, flush=True))
    elif not watch:
        print("\n".join(render_lines(read_status(), _detect_screen(out))), file=out)
    elif out.isatty():
        _redraw(read_status, out)
    else:
        previous: dict[str, str] = {}
        _repeat(read_status, True, lambda status: _print_changes(status, previous, out))


def _repeat(read_status: Callable[[], Status], watch: bool, show: Callable[[Status], None]) -> None:
    try:
        while True:
            started_at = time.monotonic()
            show(read_status())
            if not watch:
                return
            time.sleep(max(_REFRESH_SECONDS, _REST_FACTOR * (time.monotonic() - started_at)))
    except KeyboardInterrupt:
        return


def _redraw(read_status: Callable[[], Status], out: TextIO) -> None:
    """Redraw the status in the same place until Ctrl C."""
    line_count = 0

    def draw(status: Status) -> None:
        nonlocal line_count
        screen = _detect_screen(out)
        # More lines than the terminal has would scroll it, and the next redraw would start at the wrong line.
        lines = render_lines(status, screen)[: max(1, shutil.get_terminal_size().lines - 1)]
        cursor_up = f"\x1b[{line_count}F" if line_count else ""
        out.write(_HIDE_CURSOR + cursor_up + "".join(f"{line}{_CLEAR_LINE}\n" for line in lines) + _CLEAR_BELOW)
        out.flush()
        line_count = len(lines)

    try:
        _repeat(read_status, True, draw)
    finally:
        out.write(_SHOW_CURSOR)
        out.flush()


def _print_changes(status: Status, previous: dict[str, str], out: TextIO) -> None:
    """Print a line for each entry of the status that differs from `previous`, then store the entries in `previous`.

    `previous` maps the name of an entry to its text. An entry that is gone is printed as finished.
    """
    current = dict(_describe_entries(status))
    for name in previous.keys() - current.keys():
        print(f"{status.at} {name}: finished", file=out)
    for name, words in current.items():
        if previous.get(name) != words:
            print(f"{status.at} {name}: {words}", file=out, flush=True)
    previous.clear()
    previous.update(current)


def _describe_entries(status: Status) -> Iterator[tuple[str, str]]:
    service = status.service
    yield "service", f"{service.state}, process {service.process}" if service.running else "not running"
    for number, task in enumerate(status.tasks):
        words = ", ".join(filter(None, (format_percent(task), *describe_progress(task))))
        yield f"{task.kind} {task.id or number} {strip_control_characters(task.name)}", words or task.state
    for queue in status.queue:
        yield (
            f"queue {queue.channel}",
            f"{queue.due} due, {queue.later} later, {queue.paused} paused, {queue.in_hand} in progress",
        )


def _detect_screen(out: TextIO) -> Screen:
    """Return the properties of the output. NO_COLOR, TERM=dumb and output to a file disable colours."""
    is_terminal = out.isatty() and os.environ.get("TERM") != "dumb"
    has_unicode = (out.encoding or "").lower().replace("-", "") == "utf8"
    columns = max(20, shutil.get_terminal_size((80, 24)).columns)
    return Screen(columns, is_terminal and not os.environ.get("NO_COLOR"), has_unicode)
