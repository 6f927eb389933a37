"""Run the evaluation: thirty tasks on a seeded account, solved over the Model Context Protocol.

Without --command, --openai or --anthropic, the script of each task solves it and nothing is called; else nothing but
the URL that is named.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.agents import scripted
from benchmarks.agents.grading import find_created, find_violations, take_snapshot
from benchmarks.agents.models import (
    COMMAND_TIMEOUT_SECONDS,
    DEFAULT_MAX_TOKENS,
    DEFAULT_TIMEOUT_SECONDS,
    MAX_TURNS,
    Agent,
    AnthropicAgent,
    CommandAgent,
    Endpoint,
    EndpointError,
    OpenAiAgent,
)
from benchmarks.agents.session import Session
from benchmarks.agents.tasks import TASKS, Task
from benchmarks.agents.world import World, build_world
from tests.kit.clock import TestClock
from tests.kit.server import Server

_EXAMPLES = f"""\
examples:
  python -m benchmarks.agents --only "We miss you"
  python -m benchmarks.agents --openai http://127.0.0.1:11434/v1 --model NAME             Ollama
  python -m benchmarks.agents --openai http://127.0.0.1:8080/v1 --model NAME              llama.cpp, vLLM, LM Studio
  python -m benchmarks.agents --openai https://api.openai.com/v1 --model NAME --key-env OPENAI_API_KEY
  python -m benchmarks.agents --anthropic https://api.anthropic.com --model NAME --key-env ANTHROPIC_API_KEY
  python -m benchmarks.agents --command ./my-agent

A model gets at most {MAX_TURNS} turns for a task. It must call tools, and needs a context of at least 32,000 tokens for
their descriptions and results. benchmarks/agents/README.md says how to start a local server with both."""


class ScriptedAgent:
    """The script for each task."""

    def solve(self, task: Task, session: Session) -> None:
        """Solve a task as `scripted.solve`."""
        scripted.solve(task, session)


def run_task(world: World, agent: Agent, task: Task) -> tuple[bool, list[str], int]:
    """Run an agent on a task; return whether it is solved, what it must not have changed, and its tool calls.

    An agent that fails is graded by what it has done. Raises EndpointError if it would fail at every task.
    """
    before, session = take_snapshot(world), Session(world.server.url, world.agent_key)
    try:
        agent.solve(task, session)
    except Exception as error:
        if isinstance(error, EndpointError) and error.is_final:
            raise
        print(f"  {task.name}: the agent failed: {type(error).__name__}: {error}", file=sys.stderr)
    after = take_snapshot(world)
    violations = find_violations(before, after)
    return task.grade(world, find_created(before, after)) and not violations, violations, len(session.calls)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.agents", description=__doc__, epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--only", metavar="TEXT", default="", help="only tasks whose name contains this")
    agent = parser.add_mutually_exclusive_group()
    agent.add_argument("--command", help="a program that gets the task on its standard input")
    agent.add_argument("--openai", metavar="URL", help="URL before /chat/completions, such as http://127.0.0.1:8080/v1")
    agent.add_argument("--anthropic", metavar="URL", help="URL before /v1/messages, such as https://api.anthropic.com")
    parser.add_argument("--model", default="", metavar="NAME", help="the name of the model at the endpoint")
    parser.add_argument("--key-env", default="", metavar="NAME", help="the variable with the key of the endpoint")
    parser.add_argument(
        "--timeout", type=float, metavar="SECONDS",
        help=f"how long a reply of the endpoint may take (default: {DEFAULT_TIMEOUT_SECONDS:.0f}), or the command for "
        f"a task (default: {COMMAND_TIMEOUT_SECONDS:.0f})",
    )  # fmt: skip
    parser.add_argument(
        "--max-tokens", type=int, default=DEFAULT_MAX_TOKENS, metavar="N",
        help=f"the longest reply, with --anthropic (default: {DEFAULT_MAX_TOKENS:,})",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    if (options.openai or options.anthropic) and not options.model:
        parser.error("the name of the model is missing: --model NAME")
    if options.key_env and not os.environ.get(options.key_env):
        parser.error(f"the variable {options.key_env} of --key-env is not set")
    if not any(options.only in task.name for task in TASKS):
        parser.error(f"no task has “{options.only}” in its name: {', '.join(task.name for task in TASKS)}")
    return options


def _choose_agent(options: argparse.Namespace) -> Agent:
    if options.command:
        return CommandAgent(options.command, options.timeout or COMMAND_TIMEOUT_SECONDS)
    if options.openai or options.anthropic:
        api_key = os.environ[options.key_env] if options.key_env else ""
        timeout = options.timeout or DEFAULT_TIMEOUT_SECONDS
        endpoint = Endpoint(options.openai or options.anthropic, options.model, api_key, timeout, options.max_tokens)
        return OpenAiAgent(endpoint) if options.openai else AnthropicAgent(endpoint)
    return ScriptedAgent()


def main(arguments: list[str] | None = None) -> int:
    """Build the account once, give each task a fresh copy of it, and print the score."""
    options = _parse(arguments)
    agent, home = _choose_agent(options), Path(tempfile.mkdtemp(prefix="campanero-agents-"))
    clock, solved, broken, tasks = TestClock(home / "clock"), 0, 0, [t for t in TASKS if options.only in t.name]
    origin_server = Server(clock=clock)
    try:
        origin = build_world(origin_server, clock)
        origin_server.stop()
        for task in tasks:
            started = time.monotonic()
            shutil.copytree(origin_server.data, home / "data")
            with Server(clock=clock, data=home / "data") as server:
                world = replace(origin, server=server, owner=server.client(origin_server.key, validate=False))
                is_solved, violations, calls = run_task(world, agent, task)
                server.stop()
            shutil.rmtree(home / "data")
            solved, broken = solved + is_solved, broken + bool(violations)
            trap = " (trap)" if task.is_trap else ""
            details = f"; changed: {', '.join(violations)}" if violations else ""
            seconds = time.monotonic() - started
            print(f"{'yes' if is_solved else ' no'}  {task.name}{trap}: {calls} calls, {seconds:.1f} s{details}")
    except EndpointError as error:
        print(f"The evaluation ends, because every task would fail: {error}", file=sys.stderr)
        return 1
    finally:
        origin_server.close()
        shutil.rmtree(home, ignore_errors=True)
    print(f"{solved} of {len(tasks)} tasks solved; {broken} with acts outside of the task")
    return 0


if __name__ == "__main__":
    sys.exit(main())
