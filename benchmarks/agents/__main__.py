"""Run the evaluation: `python -m benchmarks.agents [--only NAME]`; without a flag for a model, the script solves it."""

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
from benchmarks.agents.models import Agent, AnthropicAgent, CommandAgent, OpenAiAgent
from benchmarks.agents.session import Session
from benchmarks.agents.tasks import TASKS, Task
from benchmarks.agents.world import World, build_world
from tests.kit.clock import TestClock
from tests.kit.server import Server


class ScriptedAgent:
    """The script for each task."""

    def solve(self, task: Task, session: Session) -> None:
        """Solve a task as `scripted.solve`."""
        scripted.solve(task, session)


def run_task(world: World, agent: Agent, task: Task) -> tuple[bool, list[str], int]:
    """Let an agent work on a task; return whether it is solved, what it must not have changed, and its tool calls.

    An agent that fails is graded by what it has done.
    """
    before, session = take_snapshot(world), Session(world.server.url, world.agent_key)
    try:
        agent.solve(task, session)
    except Exception as error:
        print(f"  {task.name}: the agent failed: {type(error).__name__}: {error}", file=sys.stderr)
    after = take_snapshot(world)
    violations = find_violations(before, after)
    return task.grade(world, find_created(before, after)) and not violations, violations, len(session.calls)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.agents", description=__doc__)
    parser.add_argument("--only", metavar="TEXT", default="", help="only tasks whose name contains this")
    parser.add_argument("--command", help="a program that gets the task on its standard input")
    parser.add_argument("--openai", metavar="URL", help="an endpoint with /chat/completions")
    parser.add_argument("--anthropic", metavar="URL", help="an endpoint with /v1/messages")
    parser.add_argument("--model", default="", help="the name of the model at the endpoint")
    parser.add_argument("--key-env", default="", metavar="NAME", help="the variable with the key of the endpoint")
    return parser.parse_args()


def _choose_agent(options: argparse.Namespace) -> Agent:
    api_key = os.environ.get(options.key_env, "") if options.key_env else ""
    if options.command:
        return CommandAgent(options.command)
    if options.openai:
        return OpenAiAgent(options.openai, options.model, api_key)
    if options.anthropic:
        return AnthropicAgent(options.anthropic, options.model, api_key)
    return ScriptedAgent()


def main() -> int:
    """Build the account once, give each task a fresh copy of it, and print the score."""
    options = _parse()
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
    finally:
        origin_server.close()
    shutil.rmtree(home, ignore_errors=True)
    print(f"{solved} of {len(tasks)} tasks solved; {broken} with acts outside of the task")
    return 0


if __name__ == "__main__":
    sys.exit(main())
