"""How a status looks: as wide as the screen, plain where it has to be, in clear words where there is nothing."""

import re
import unicodedata

import pytest
from msgspec import structs

from appliance.ops.status import Day, Queue, Service, Status, Storage, Task, terminal
from appliance.ops.status.terminal import Screen

EMPTY = Status(
    "1.2.3", "2026-03-01T12:00:00.000Z", "/srv/campanero", Service(False, None, "127.0.0.1:8080", "not running"), [],
    [], [Queue(one, 0, 0, 0, 0, 0.0, 0) for one in ("email", "sms")], "2026-03-01T00:00:00.000Z",
    [Day(one, *[0] * 8) for one in ("email", "sms")], Storage(1_500_000, 20_000, 5_000_000_000, 200_000_000),
)  # fmt: skip
SEND = Task("send", 1, 1, "Spring letter", "sending", "", 45_000, 100_000, 120.0, 458.3)


def with_tasks(*tasks: Task) -> Status:
    """Return a status with these tasks, of a service that runs."""
    return structs.replace(EMPTY, tasks=[*tasks], service=Service(True, 7, "127.0.0.1:8080", "ready"))


def columns(line: str) -> int:
    """Return how many columns a line takes on a terminal."""
    bare = re.sub(r"\x1b\[\d+m", "", line)
    return sum(2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in bare if not unicodedata.combining(one))


def test_what_is_empty_is_said_in_words() -> None:
    """Nothing is left blank, and nothing looks like a fault."""
    told = "\n".join(terminal.render_lines(EMPTY, Screen(80)))
    for words in (
        "the service is not running", "nothing is being sent", "no import is running", "no export is running",
        "empty", "nothing yet", "database 1.5 MB, its log 20 kB, 5.0 GB free",
    ):  # fmt: skip
        assert words in told


def test_a_send_has_its_bar_its_speed_and_its_end() -> None:
    """How much, how fast, how long; the bar is as full as the send is, and never full before its end."""
    [line] = [one for one in terminal.render_lines(with_tasks(SEND), Screen(100)) if "Spring" in one]
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
def test_no_line_is_wider_than_the_screen(width: int, name: str) -> None:
    """Whatever people call things, and however narrow it is."""
    paused = structs.replace(SEND, name=name, state="paused", words="too many complain " * 9, per_second=None)
    status = structs.replace(with_tasks(structs.replace(SEND, name=name), paused), stopped=[name * 3])
    for signs in (True, False):
        for line in terminal.render_lines(status, Screen(width, True, signs)):
            assert columns(line) <= width, line


def test_names_command_no_terminal() -> None:
    """Escapes, ends of lines and signs that turn text around are taken out of what people wrote."""
    evil = structs.replace(SEND, name="a\x1b]0;owned\x07\x1b[2Jb\nc\u202ed\x9b31m")
    told = terminal.render_lines(with_tasks(evil), Screen(120))
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202e]", "".join(told))
    assert any("a ]0;owned [2Jb c d 31m" in line for line in told)


def test_where_signs_are_missing_it_is_ascii() -> None:
    """A terminal that knows ASCII alone gets nothing else, and one without colours no escapes."""
    told = "\n".join(
        terminal.render_lines(with_tasks(structs.replace(SEND, name="Long name " * 9)), Screen(80, False, False))
    )
    assert told.isascii() and "\x1b" not in told and "####" in told


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "1 s"), (59, "59 s"), (61, "2 min"), (3599, "60 min"), (7_260, "2 h 1 min"), (200_000, "2 days")],
)
def test_spans(seconds: float, words: str) -> None:
    """A span is told as exactly as anybody wants to know."""
    assert terminal.format_duration(seconds) == words
