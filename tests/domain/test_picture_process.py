"""The child process that decodes pictures: its time limits, and its end when it is idle or its parent dies."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.content.pictures import (
    ConvertTask,
    FindColoursTask,
    Picture,
    PictureProcess,
    ShrinkTask,
    UnusablePicture,
)
from appliance.core import executable, limited_process
from appliance.core.errors import Unavailable
from tests.kit.pictures import decode_image, encode_image, hostile_file, photo
from tests.kit.process_metrics import wait_until_ended
from tests.kit.server import Server

PNG = encode_image(photo(), "PNG")


@pytest.fixture
def decoder() -> Iterator[PictureProcess]:
    """A picture process of this test, ended afterwards."""
    picture_process = PictureProcess()
    yield picture_process
    if picture_process.get_pid() is not None:
        picture_process.end(must_kill=True)


def get_pid(decoder: PictureProcess) -> int:
    """Return the process id of the child."""
    pid = decoder.get_pid()
    assert pid is not None
    return pid


def test_one_process_serves_many_pictures(decoder: PictureProcess) -> None:
    """One child runs each kind of task, also after a rejected file."""
    assert decode_image(decoder.decode(ConvertTask(PNG), Picture).content).size == (640, 400)
    child = get_pid(decoder)
    with pytest.raises(UnusablePicture, match="is an SVG"):
        decoder.decode(ConvertTask(hostile_file("svg")), Picture)
    assert decode_image(decoder.decode(ShrinkTask(PNG, 96), bytes)).size == (96, 60)
    assert decoder.decode(FindColoursTask(PNG), tuple[str, ...])
    assert get_pid(decoder) == child


def test_a_process_that_does_not_reply_is_killed(decoder: PictureProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped child, as on a busy computer, is unavailable and not an error of the file; the next gets a new one."""
    decoder.decode(ConvertTask(PNG), Picture)
    child = get_pid(decoder)
    os.kill(child, signal.SIGSTOP)
    monkeypatch.setattr(limited_process, "MAX_SECONDS", 0.5)
    started = time.monotonic()
    with pytest.raises(Unavailable):
        decoder.decode(ConvertTask(PNG), Picture)
    assert time.monotonic() - started < 5
    assert not Path(f"/proc/{child}").exists()
    monkeypatch.setattr(limited_process, "MAX_SECONDS", 20.0)
    assert decoder.decode(ConvertTask(PNG), Picture).width == 640


BUSY = """
from appliance.content import picture_worker, pictures
pictures.MAX_PROCESSOR_SECONDS = 1
def run(task):
    while True: pass
picture_worker._run_task = run
picture_worker.main()
"""


def test_a_picture_that_takes_too_much_processor_time_is_refused(
    decoder: PictureProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel ends a decoder that computes on and on, and the next picture is decoded (T04)."""
    with monkeypatch.context() as patch:
        patch.setattr(executable, "_command", lambda *words: ([sys.executable, "-c", BUSY], Server().env))
        begun = time.monotonic()
        with pytest.raises(UnusablePicture, match=r"takes too long to decode \(maximum is 5 seconds\)"):
            decoder.decode(ConvertTask(PNG), Picture)
        assert time.monotonic() - begun < limited_process.MAX_SECONDS
    assert decoder.decode(ConvertTask(PNG), Picture).width == 640


def test_it_is_ended_when_the_service_stops(decoder: PictureProcess) -> None:
    """A request that waits for a picture does not hold up the stop."""
    decoder.decode(ConvertTask(PNG), Picture)
    child = get_pid(decoder)
    os.kill(child, signal.SIGSTOP)
    executable.kill_awaited_children()
    assert wait_until_ended(child)


def test_an_idle_process_ends(decoder: PictureProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """The child ends after `limited_process.IDLE_SECONDS`; the next picture starts another."""
    monkeypatch.setattr(limited_process, "IDLE_SECONDS", 0.1)
    decoder.decode(ConvertTask(PNG), Picture)
    deadline = time.monotonic() + 20
    while decoder.get_pid() is not None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert decoder.get_pid() is None
    assert decoder.decode(ConvertTask(PNG), Picture).width == 640


def test_a_process_that_fails_to_start_is_unavailable(decoder: PictureProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that cannot start or ends at once raises Unavailable, not an error of the file."""
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(Unavailable):
        decoder.decode(ConvertTask(PNG), Picture)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(Unavailable):
        decoder.decode(ConvertTask(PNG), Picture)


def test_the_process_ends_with_its_parent() -> None:
    """After a `kill -9` of the parent the child ends."""
    script = (
        "import sys, time; from appliance.content import pictures;"
        "from tests.kit.pictures import encode_image, photo;"
        "pictures.convert(encode_image(photo(), 'PNG'));"
        "print(pictures._process.get_pid(), flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], env=Server().env, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
        parent.wait()
    assert wait_until_ended(child)
