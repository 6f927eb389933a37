"""Run the appliance with lost wake-ups: `python -m tests.kit.lost_wake_ups serve ...`.

After a SIGUSR1 everything that is put into the wake-up queue is removed again at once; the next SIGUSR1 ends this.
"""

import signal
import sys
import threading
import time

from appliance.__main__ import main
from appliance.jobs.memory_storage import BlockingMemoryStorage

_emptying = threading.Event()
_queues: list[BlockingMemoryStorage] = []
_original_init = BlockingMemoryStorage.__init__


def _record_queue(queue: BlockingMemoryStorage, *arguments: object, **keywords: object) -> None:
    _original_init(queue, *arguments, **keywords)
    _queues.append(queue)


def _toggle(*_: object) -> None:
    if _emptying.is_set():
        _emptying.clear()
    else:
        _emptying.set()
    print("the queue is", "emptied" if _emptying.is_set() else "left alone", file=sys.stderr, flush=True)


def _empty_queues() -> None:
    while _emptying.wait():
        for queue in _queues:
            queue.flush_queue()
        time.sleep(0.0001)


if __name__ == "__main__":
    BlockingMemoryStorage.__init__ = _record_queue  # type: ignore[method-assign]  # the storage must not differ from the real one otherwise
    signal.signal(signal.SIGUSR1, _toggle)
    threading.Thread(target=_empty_queues, daemon=True).start()
    main()
