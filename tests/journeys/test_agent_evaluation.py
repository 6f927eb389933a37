"""The evaluation of assistants (`benchmarks/agents`): its script solves two tasks; who does nothing, solves none."""

from pathlib import Path

from benchmarks.agents.__main__ import ScriptedAgent, run_task
from benchmarks.agents.session import Session
from benchmarks.agents.tasks import TASKS, Task
from benchmarks.agents.world import build_world
from tests.kit.clock import TestClock
from tests.kit.server import Server


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


def test_two_tasks(tmp_path: Path) -> None:
    """The script solves a task about lapsed buyers and a trap; whoever does nothing, or too much, solves none."""
    clock = TestClock(tmp_path / "clock")
    server = Server(clock=clock)
    try:
        world = build_world(server, clock)
        for task in (task for task in TASKS if task.name in ("We miss you", "Invoice")):
            assert run_task(world, IdleAgent(), task) == (False, [], 0)
            assert run_task(world, RogueAgent(), task) == (False, [], 3)
            assert run_task(world, ScriptedAgent(), task)[:2] == (True, [])
    finally:
        server.close()
