"""Run an action in a forked process that kills itself at one of its steps."""

import os
import traceback
from collections.abc import Callable


def run_until_killed(arm: Callable[[], object], action: Callable[[], object]) -> bool:
    """Return whether an action ended in a forked process, in which `arm` was called before it.

    `arm` makes the process kill itself at a step. Raises AssertionError if the action failed.
    """
    pid = os.fork()
    if pid == 0:
        try:
            arm()
            action()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(3)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) or os.waitstatus_to_exitcode(status) == 0
    return not os.WIFSIGNALED(status)
