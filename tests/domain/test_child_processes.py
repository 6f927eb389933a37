"""Child processes of the service: none outlives the process that started it (T22)."""

import subprocess
import sys
import time

import pytest

from tests.kit.process_metrics import wait_until_ended
from tests.kit.server import Server

# Starts a child as the service does, but with a stdin that does not end with this process
START = """
import subprocess, sys, time
from appliance.core import executable
command, env = executable._command(*sys.argv[1:])
print(subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL).pid, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("words", ["read-import", "rehearse", "setup --email a@example.org --name A --data"])
def test_a_child_ends_when_its_parent_is_killed(words: str) -> None:
    """The children for imports and preflights, and any command, as backups and the health check run one."""
    arguments = words.split()
    server = Server()
    if arguments[0] == "setup":
        arguments.append(str(server.data))
    with subprocess.Popen(
        [sys.executable, "-c", START, *arguments], env=server.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None and parent.stdin is not None
        child = int(parent.stdout.readline())
        time.sleep(2)  # The child has started and waits for its stdin, which this test keeps open.
        parent.kill()
        parent.wait()
        killed_at = time.monotonic()
        assert wait_until_ended(child)
        assert time.monotonic() - killed_at < 5
    server.close()
