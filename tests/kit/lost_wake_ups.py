"""The appliance with lost wake-ups: `python -m tests.kit.lost_wake_ups serve ...`.

Between one SIGUSR1 and the next, everything that is put into the wake-up queue is removed again at once.
"""

import signal
import sys
import threading
import time

from appliance.__main__ import main
from appliance.jobs.tasks import BlockingMemoryStorage

_emptying = threading.Event()
_queues: list[BlockingMemoryStorage] = []
_original_init = BlockingMemoryStorage.__init__


def _record_queue(bell: BlockingMemoryStorage, *arguments: object, **named: object) -> None:
    _original_init(bell, *arguments, **named)
    _queues.append(bell)


def _toggle(*_: object) -> None:
    if _emptying.is_set():
        _emptying.clear()
    else:
        _emptying.set()
    print("the bell is", "emptied" if _emptying.is_set() else "left alone", file=sys.stderr, flush=True)


def _empty_queues() -> None:
    while _emptying.wait():
        for bell in _queues:
            bell.flush_queue()
        time.sleep(0.0001)


if __name__ == "__main__":
    BlockingMemoryStorage.__init__ = _record_queue  # type: ignore[method-assign]  # it is not to be told apart from the real one
    signal.signal(signal.SIGUSR1, _toggle)
    threading.Thread(target=_empty_queues, daemon=True).start()
    main()
