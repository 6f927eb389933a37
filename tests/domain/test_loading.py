"""Modules that are loaded for whoever asks first: once for all who ask, and again where it failed."""

import asyncio
import subprocess
import sys
import threading
from typing import Any

import pytest

from appliance import loading
from tests.kit.server import Server


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody have asked for anything yet."""
    monkeypatch.setattr(loading, "_whole", {})
    monkeypatch.setattr(loading, "_under_way", {})
    monkeypatch.setattr(loading, "_until", 0.0)


def test_many_who_ask_wait_for_one_load_and_who_leaves_takes_nothing_away() -> None:
    """One thread is enough for all of them; meanwhile nobody else need hurry, and a moment longer."""
    goes_on, begun = threading.Event(), []

    def load() -> str:
        begun.append(threading.current_thread().name)
        assert goes_on.wait(30)
        return "loaded"

    async def ask() -> list[Any]:
        many = [asyncio.create_task(loading.once("thing", load)) for _ in range(20)]
        await asyncio.sleep(0.05)
        assert loading.is_asked()
        many[0].cancel()
        goes_on.set()
        return await asyncio.gather(*many, return_exceptions=True)

    left, *others = asyncio.run(ask())
    assert isinstance(left, asyncio.CancelledError) and others == ["loaded"] * 19
    assert len(begun) == 1 and begun[0] != threading.main_thread().name
    assert loading.is_asked()


def test_what_cannot_be_loaded_is_tried_again_and_keeps_nobody_waiting() -> None:
    """Whoever asks is told each time; what is loaded without being asked for is not put off by it."""
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError):
            asyncio.run(loading.module("appliance.that_is_not_there"))
    assert not loading.is_asked()


@pytest.mark.parametrize(
    "asked",
    [
        "asyncio.run(loading.module('appliance.public.media'))",
        "from ui import declared; asyncio.run(loading.once('login', declared._load, 'login'))",
        "from appliance.api import declared; declared.routes()",
    ],
    ids=["public", "page", "endpoint"],
)
def test_what_joins_itself_is_there_before_anybody_is_served(asked: str) -> None:
    """However the first one asks, in a process that has loaded nothing."""
    tell = f"import asyncio, sys; from appliance import loading; {asked}; print('appliance.joined' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", tell], env=Server().env, capture_output=True, text=True, timeout=120)
    assert (done.stdout.strip(), done.returncode) == ("True", 0), done.stderr
