"""The drawing of `status` in a terminal: as wide as the screen, ASCII where needed, words where there is nothing."""

import re
import unicodedata

import pytest
from msgspec import structs

from appliance.ops.status import Copies, Day, Queue, Service, Status, Storage, Submission, Task, terminal
from appliance.ops.status.terminal import Screen

EMPTY = Status(
    "1.2.3", "2026-03-01T12:00:00.000Z", "/srv/campanero", Service(False, None, "127.0.0.1:8080", "not running"), [],
    [], [Queue(channel, 0, 0, 0, 0, 0.0, 0) for channel in ("email", "sms")], "2026-03-01T00:00:00.000Z",
    [Day(channel, *[0] * 8) for channel in ("email", "sms")], Storage(1_500_000, 20_000, 5_000_000_000, 200_000_000),
    Submission([], 0), Copies(False, None, None, False, None, "", "", None),
)  # fmt: skip
SEND = Task("send", 1, 1, "Spring letter", "sending", "", 45_000, 100_000, 120.0, 458.3)


def build_status(*tasks: Task) -> Status:
    """Return the status of a running service with these tasks."""
    return structs.replace(EMPTY, tasks=[*tasks], service=Service(True, 7, "127.0.0.1:8080", "ready"))


def count_columns(line: str) -> int:
    """Return how many terminal columns a line takes."""
    text = re.sub(r"\x1b\[\d+m", "", line)
    return sum(
        2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in text
        if not unicodedata.combining(character)
    )


def test_an_empty_status_is_described() -> None:
    """Each empty part has its own words."""
    output = "\n".join(terminal.render_lines(EMPTY, Screen(80)))
    for text in (
        "the service is not running", "nothing is being sent", "no import is running", "no export is running",
        "empty", "nothing yet", "database 1.5 MB, its log 20 kB, 5.0 GB free",
    ):  # fmt: skip
        assert text in output


def test_a_send_shows_progress_rate_and_time_left() -> None:
    """The bar matches the progress; 100 % is only shown when the send is complete."""
    [line] = [row for row in terminal.render_lines(build_status(SEND), Screen(100)) if "Spring" in row]
    assert "45 %" in line and "45,000 of 100,000  120/s  8 min left" in line
    bar = re.search("█+░+", line)
    assert bar is not None and round(bar[0].count("█") / len(bar[0]), 1) in (0.4, 0.5)
    nearly = structs.replace(SEND, done=99_999)
    assert (
        terminal.format_percent(nearly) == "99 %"
        and terminal.format_percent(structs.replace(SEND, done=100_000)) == "100 %"
    )


@pytest.mark.parametrize("width", [20, 30, 50, 79, 80, 120, 300])
@pytest.mark.parametrize("name", ["x", "Frühlingsbrief " * 10, "春の手紙" * 20, "e\u0301" * 60])
def test_lines_fit_the_screen(width: int, name: str) -> None:
    """No line is wider than the screen, for any width and any name, wide characters included."""
    paused = structs.replace(SEND, name=name, state="paused", words="too many complain " * 9, per_second=None)
    status = structs.replace(build_status(structs.replace(SEND, name=name), paused), stopped=[name * 3])
    for has_unicode in (True, False):
        for line in terminal.render_lines(status, Screen(width, True, has_unicode)):
            assert count_columns(line) <= width, line


def test_names_cannot_control_the_terminal() -> None:
    """Escape sequences, line ends and bidirectional controls are removed from names."""
    evil = structs.replace(SEND, name="a\x1b]0;owned\x07\x1b[2Jb\nc\u202ed\x9b31m")
    lines = terminal.render_lines(build_status(evil), Screen(120))
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202e]", "".join(lines))
    assert any("a ]0;owned [2Jb c d 31m" in line for line in lines)


def test_ascii_terminals_get_ascii() -> None:
    """Without Unicode and colours the output is ASCII without escape sequences."""
    output = "\n".join(
        terminal.render_lines(build_status(structs.replace(SEND, name="Long name " * 9)), Screen(80, False, False))
    )
    assert output.isascii() and "\x1b" not in output and "####" in output


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.2, "1 s"), (59, "59 s"), (61, "2 min"), (3599, "60 min"), (7_260, "2 h 1 min"), (200_000, "2 days")],
)
def test_format_duration(seconds: float, expected: str) -> None:
    """A duration is rounded to two units at most."""
    assert terminal.format_duration(seconds) == expected
