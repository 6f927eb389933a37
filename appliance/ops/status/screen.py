"""Shows a status: once, or again and again in its place; line after line where nobody looks at a terminal."""

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from typing import TextIO

import msgspec

from appliance.ops.status import draw
from appliance.ops.status.draw import Screen
from appliance.ops.status.look import Status

_SECONDS = 1.0
# A look that takes long is followed by a rest of many times that, so that watching costs the service little
_RESTS = 10
_HIDDEN, _SHOWN, _REST_OF_LINE, _BELOW = "\x1b[?25l", "\x1b[?25h", "\x1b[K", "\x1b[J"


def show(look: Callable[[], Status], watch: bool, as_json: bool, out: TextIO | None = None) -> None:
    """Show what `look` answers; watched until Ctrl C."""
    out = out or sys.stdout
    if as_json:
        _each(look, watch, lambda status: print(msgspec.json.encode(status).decode(), file=out, flush=True))
    elif not watch:
        print("\n".join(draw.lines(look(), _screen(out))), file=out)
    elif out.isatty():
        _live(look, out)
    else:
        said: dict[str, str] = {}
        _each(look, True, lambda status: _say_new(status, said, out))


def _each(look: Callable[[], Status], again: bool, tell: Callable[[Status], None]) -> None:
    try:
        while True:
            begun = time.monotonic()
            tell(look())
            if not again:
                return
            time.sleep(max(_SECONDS, _RESTS * (time.monotonic() - begun)))
    except KeyboardInterrupt:
        return


def _live(look: Callable[[], Status], out: TextIO) -> None:
    """Draw in the same place again; what is above stays, and the last picture too."""
    drawn = 0

    def tell(status: Status) -> None:
        nonlocal drawn
        screen = _screen(out)
        # What does not fit would scroll away, and the next picture would begin too far down
        found = draw.lines(status, screen)[: max(1, shutil.get_terminal_size().lines - 1)]
        up = f"\x1b[{drawn}F" if drawn else ""
        out.write(_HIDDEN + up + "".join(f"{line}{_REST_OF_LINE}\n" for line in found) + _BELOW)
        out.flush()
        drawn = len(found)

    try:
        _each(look, True, tell)
    finally:
        out.write(_SHOWN)
        out.flush()


def _say_new(status: Status, said: dict[str, str], out: TextIO) -> None:
    """Write a line for each thing that is another than before, with the moment."""
    fresh = dict(_entries(status))
    for name in said.keys() - fresh.keys():
        print(f"{status.at} {name}: over", file=out)
    for name, words in fresh.items():
        if said.get(name) != words:
            print(f"{status.at} {name}: {words}", file=out, flush=True)
    said.clear()
    said.update(fresh)


def _entries(status: Status) -> Iterator[tuple[str, str]]:
    here = status.service
    yield "service", f"{here.state}, process {here.process}" if here.running else "not running"
    for number, task in enumerate(status.tasks):
        words = ", ".join(filter(None, (draw.percent(task), *draw.progress(task))))
        yield f"{task.kind} {task.id or number} {draw.plain(task.name)}", words or task.state
    for one in status.queue:
        yield f"queue {one.channel}", f"{one.due} due, {one.later} later, {one.paused} paused, {one.in_hand} in hand"


def _screen(out: TextIO) -> Screen:
    """Return what is drawn on: NO_COLOR and TERM=dumb want none, and files have none."""
    is_terminal = out.isatty() and os.environ.get("TERM") != "dumb"
    signs = (out.encoding or "").lower().replace("-", "") == "utf8"
    columns = max(20, shutil.get_terminal_size((80, 24)).columns)
    return Screen(columns, is_terminal and not os.environ.get("NO_COLOR"), signs)
