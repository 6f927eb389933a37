"""The child process that decodes pictures: its time limit, its rest, and that it does not outlive who started it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.content.pictures import process
from appliance.content.pictures.formats import ConvertTask, FindColoursTask, Picture, ShrinkTask, UnusablePicture
from appliance.content.pictures.process import PictureProcess
from appliance.core.errors import Unavailable
from tests.kit.pictures import hostile, opened, photo, saved
from tests.kit.server import Server
from tests.kit.vitals import has_ended

PNG = saved(photo(), "PNG")


@pytest.fixture
def pictures() -> Iterator[PictureProcess]:
    """A process of our own, ended afterwards."""
    made = PictureProcess()
    yield made
    if made._running is not None:
        made._end(must_kill=True)


def pid_of(pictures: PictureProcess) -> int:
    """Return the process id of the child."""
    assert pictures._running is not None
    return pictures._running[0].pid


def test_one_process_serves_many_pictures(pictures: PictureProcess) -> None:
    """Each kind of task, and a file that is refused between them."""
    assert opened(pictures.run(ConvertTask(PNG), Picture).content).size == (640, 400)
    child = pid_of(pictures)
    with pytest.raises(UnusablePicture, match="is an SVG"):
        pictures.run(ConvertTask(hostile()["svg"]), Picture)
    assert opened(pictures.run(ShrinkTask(PNG, 96), bytes)).size == (96, 60)
    assert pictures.run(FindColoursTask(PNG), tuple[str, ...])
    assert pid_of(pictures) == child


def test_a_picture_that_takes_too_long_is_refused_and_its_process_ended(
    pictures: PictureProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child that does nothing any more stands for a file that takes for ever."""
    pictures.run(ConvertTask(PNG), Picture)
    child = pid_of(pictures)
    os.kill(child, signal.SIGSTOP)
    monkeypatch.setattr(process, "MAX_SECONDS", 0.5)
    begun = time.monotonic()
    with pytest.raises(UnusablePicture, match="takes too long to decode"):
        pictures.run(ConvertTask(PNG), Picture)
    assert time.monotonic() - begun < 5
    assert not Path(f"/proc/{child}").exists()
    monkeypatch.setattr(process, "MAX_SECONDS", 20.0)
    assert pictures.run(ConvertTask(PNG), Picture).width == 640


def test_it_ends_when_it_has_nothing_to_do(pictures: PictureProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the next picture starts another."""
    monkeypatch.setattr(process, "IDLE_SECONDS", 0.1)
    pictures.run(ConvertTask(PNG), Picture)
    deadline = time.monotonic() + 20
    while pictures._running is not None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert pictures._running is None
    assert pictures.run(ConvertTask(PNG), Picture).width == 640


def test_what_cannot_be_started_is_unavailable(pictures: PictureProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """No process, or one that ends at once: nothing is wrong with the file."""
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(Unavailable):
        pictures.run(ConvertTask(PNG), Picture)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(Unavailable):
        pictures.run(ConvertTask(PNG), Picture)


def test_it_does_not_outlive_who_started_it() -> None:
    """`kill -9` of the service closes the socket, and that ends the child."""
    tell = (
        "import sys, time; from appliance.content.pictures import process; from tests.kit.pictures import photo, saved;"
        "process.convert(saved(photo(), 'PNG')); print(process._process._running[0].pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", tell], env=Server().env, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
        parent.wait()
    assert has_ended(child)
