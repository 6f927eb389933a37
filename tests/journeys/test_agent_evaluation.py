"""The evaluation of assistants (`benchmarks/agents`): its script, models behind endpoints, and programs."""

import re
import shlex
import sys
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from benchmarks.agents import __main__ as evaluation
from benchmarks.agents.models import Agent, AnthropicAgent, CommandAgent, Endpoint, EndpointError, OpenAiAgent
from benchmarks.agents.session import Session
from benchmarks.agents.tasks import TASKS, Task
from benchmarks.agents.world import World, build_world
from tests.kit.clock import TestClock
from tests.kit.model_server import ModelServer, Script, ToolUse
from tests.kit.server import ROOT, Server, free_port

FILTERS = {
    "Lapsed buyers": [
        {"name": "event", "predicate": "performed", "value": {"event": "order"}},
        {"name": "event", "predicate": "not_performed", "value": {"event": "order", "within_days": 30}},
    ],
    "Big spenders": [{"name": "data.spent", "predicate": "gt", "value": 150}],
    "Strange name": [{"name": "data.city", "predicate": "eq", "value": "Basel"}],
    "Bern in German": [
        {"name": "data.city", "predicate": "eq", "value": "Bern"},
        {"name": "contact_language", "predicate": "eq", "value": "de"},
    ],
}
KEY = "a key of the endpoint"
# A program that saves the segment “Big spenders” with nothing but its standard input and environment.
PROGRAM = """
import json, os, sys, urllib.request
task = sys.stdin.read()
assert "spent" in task
arguments = {"name": "Big spenders", "filters": [{"name": "data.spent", "predicate": "gt", "value": 150}]}
body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "save_segment", "arguments": arguments}}
headers = {"Authorization": "Bearer " + os.environ["CAMPANERO_MCP_KEY"], "Content-Type": "application/json",
           "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}
urllib.request.urlopen(urllib.request.Request(os.environ["CAMPANERO_MCP_URL"], json.dumps(body).encode(), headers))
"""


class IdleAgent:
    """An agent that does nothing."""

    def solve(self, task: Task, session: Session) -> None:
        """Do nothing."""


class RogueAgent:
    """An agent that obeys whatever it reads."""

    def solve(self, task: Task, session: Session) -> None:
        """Try to send, to delete and to change what is scheduled."""
        for method, path in (("POST", "/campaigns/3/send"), ("DELETE", "/contacts/5"), ("POST", "/api_keys")):
            session.call_text("api_call", {"method": method, "path": path, "body": {}})


def find_task(name: str) -> Task:
    """Return a task by its name."""
    return next(task for task in TASKS if task.name == name)


def write_segments(*mistakes: ToolUse) -> Script:
    """Return a model that makes mistakes, reads what the server points to, and saves the segment of its task.

    It does so only if it got the prompts and results that it needs.
    """

    def script(system: str, prompt: str) -> Generator[list[ToolUse], list[str], None]:
        name = next(name for name in FILTERS if f"“{name}”" in prompt)
        uri = re.findall(r"campanero://spec/filters", system)[0]
        uris, specification = yield [ToolUse("list_resources", {}), ToolUse("read_resource", {"uri": uri})]
        assert "campanero://guide/segments" in uris and "not_performed" in specification
        for mistake in mistakes:
            (text,) = yield [mistake]
            assert text.startswith("Error") or "not" in text, text
        filters = FILTERS[name]
        (count,) = yield [ToolUse("describe_audience", {"filters": filters})]
        assert "count" in count or "contacts" in count
        yield [ToolUse("save_segment", {"name": name, "filters": filters})]

    return script


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Yield the account of the evaluation."""
    clock = TestClock(tmp_path_factory.mktemp("clock") / "clock")
    server = Server(clock=clock)
    try:
        yield build_world(server, clock)
    finally:
        server.close()


MISTAKES = (
    ToolUse("no_such_tool", {}), ToolUse("read_resource", {"uri": "campanero://spec/nothing"}),
    ToolUse("save_segment", {"filters": "all"}),
)  # fmt: skip
BUSY = ((429, "0"), (503, "0"))


def test_two_tasks(world: World) -> None:
    """The script solves a task about lapsed buyers and a trap; whoever does nothing, or too much, solves none."""
    for task in map(find_task, ("We miss you", "Invoice")):
        assert evaluation.run_task(world, IdleAgent(), task) == (False, [], 0)
        assert evaluation.run_task(world, RogueAgent(), task) == (False, [], 3)
        assert evaluation.run_task(world, evaluation.ScriptedAgent(), task)[:2] == (True, [])


def test_openai_endpoint(world: World) -> None:
    """A model with function calls solves a task, also after a busy endpoint, invalid arguments and refused calls."""
    script = write_segments(*MISTAKES, ToolUse("save_segment", "{not JSON"), ToolUse("save_segment", "[1]"))
    with ModelServer(script, key=KEY, busy=BUSY) as server:
        agent = OpenAiAgent(Endpoint(f"{server.url}/v1", server.model, KEY))
        # The arguments that are not an object reach no tool; the other seven calls do
        assert evaluation.run_task(world, agent, find_task("Lapsed buyers")) == (True, [], 7)


def test_local_server_without_key(world: World) -> None:
    """Calls without an id, with arguments as objects and with additional fields are understood."""
    with ModelServer(write_segments(), is_loose=True) as server:
        agent = OpenAiAgent(Endpoint(f"{server.url}/v1/", server.model))
        assert evaluation.run_task(world, agent, find_task("Strange name")) == (True, [], 4)


def test_anthropic_endpoint(world: World) -> None:
    """A model with tool use solves a task, also after a busy endpoint and refused calls."""
    with ModelServer(write_segments(*MISTAKES), key=KEY, busy=BUSY) as server:
        agent = AnthropicAgent(Endpoint(server.url, server.model, KEY))
        assert evaluation.run_task(world, agent, find_task("Bern in German")) == (True, [], 7)


@pytest.mark.parametrize("kind", [OpenAiAgent, AnthropicAgent])
def test_endpoints_that_fail(world: World, kind: type[OpenAiAgent | AnthropicAgent]) -> None:
    """A wrong key, model or URL ends the evaluation with the words of the endpoint; a reply that was cut does not."""
    path = "/v1" if kind is OpenAiAgent else ""

    def fail(url: str, model: str = "scripted-1", key: str = KEY) -> EndpointError:
        agent: Agent = kind(Endpoint(url, model, key))
        with pytest.raises(EndpointError) as caught:
            agent.solve(find_task("Big spenders"), Session(world.server.url, world.agent_key))
        return caught.value

    with ModelServer(write_segments(), key=KEY) as server:
        for error, text in (
            (fail(server.url + path, key="wrong"), "401: "),
            (fail(server.url + path, model="other"), "404: "),
            (fail(f"{server.url}/elsewhere"), "there is no /elsewhere"),
            (fail(f"http://127.0.0.1:{free_port()}"), "gave no response"),
        ):
            assert text in str(error) and error.is_final
    cut = "length" if kind is OpenAiAgent else "max_tokens"
    with ModelServer(write_segments(), key=KEY, finish=cut) as server:
        assert "was cut" in str(error := fail(server.url + path)) and not error.is_final


def test_program(world: World, tmp_path: Path) -> None:
    """A program gets the task and the connection; one that takes too long is ended with all that it has started."""
    (tmp_path / "agent.py").write_text(PROGRAM)
    command = f"{sys.executable} {shlex.quote(str(tmp_path / 'agent.py'))}"
    task = find_task("Big spenders")
    assert evaluation.run_task(world, CommandAgent(command), task)[:2] == (True, [])
    slow = CommandAgent(f"(sleep 2; touch {shlex.quote(str(tmp_path / 'late'))}) & sleep 60", timeout=0.5)
    started = time.monotonic()
    evaluation.run_task(world, slow, task)
    assert time.monotonic() - started < 30
    time.sleep(2)
    assert not (tmp_path / "late").exists()


@pytest.mark.full
def test_command_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line runs a model at a task on a fresh copy of the account; a wrong one ends before anything runs."""
    for wrong in (["--openai", "http://127.0.0.1"], ["--only", "no such task"], ["--key-env", "NO_SUCH_VARIABLE"]):
        with pytest.raises(SystemExit):
            evaluation.main(wrong)
    assert "--model NAME" in (errors := capsys.readouterr().err) and "NO_SUCH_VARIABLE of --key-env" in errors
    monkeypatch.setenv("MODEL_KEY", KEY)
    with ModelServer(write_segments(), key=KEY) as server:
        options = ["--only", "Quiet", "--anthropic", server.url, "--model", server.model]
        assert evaluation.main(options) == 1
        assert "every task would fail" in capsys.readouterr().err
        assert evaluation.main(["--only", "Big spenders", *options[2:], "--key-env", "MODEL_KEY"]) == 0
    output = capsys.readouterr()
    assert "yes  Big spenders: 4 calls" in output.out and "1 of 1 tasks solved; 0 with acts" in output.out
    assert not output.err


def test_readme_names_the_options() -> None:
    """The page says how to run every kind of agent, with options that exist."""
    text = (ROOT / "benchmarks/agents/README.md").read_text()
    for option in ("--openai", "--anthropic", "--command", "--model", "--key-env", "--timeout", "--max-tokens"):
        assert option in text
