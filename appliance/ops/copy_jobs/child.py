"""The child process that makes a copy, or restores the newest one for a test.

It gets its task, including the secrets, on standard input, reports each step as a line of JSON, and ends if the service
ends. So the memory of the service does not grow. Whatever a kill leaves is continued or removed by the next run.
"""

import errno
import os
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from appliance.core import clock, crypto, executable
from appliance.ops.copies import catalog, create, keys, prune
from appliance.ops.copies.create import CopyFailed
from appliance.ops.copy_jobs import proof
from appliance.ops.copy_jobs.history import CopyResult, Failure, StoredCopy
from appliance.ops.copy_jobs.schedule import ChildTask
from appliance.ops.copy_jobs.store_check import name_error
from appliance.ops.stores import open_store
from appliance.ops.stores.base import StoreError
from appliance.settings import config
from appliance.settings.copies import Copies

_NICENESS = 10
_REPORT_SECONDS = 0.5


def main() -> int:
    """Run one copy or test restore, and send its result or its failure to the service."""
    os.nice(_NICENESS)
    clock.use_offset_file(os.environ.get("CAMPANERO_TEST_CLOCK"))
    task = executable.read_task(ChildTask)
    loaded = config.load({"data_dir": task.data_dir}, {}).config
    config.set_current(msgspec.structs.replace(loaded, copies=task.copies, storage=task.storage))
    crypto.use_key(task.key)
    run = _copy if task.kind == "copy" else _prove
    try:
        done: dict[str, Any] = run(Path(task.data_dir), task.copies)
    except proof.ProofFailed as error:
        done = {"error": msgspec.to_builtins(Failure(error.code, str(error))), "tested": error.tested}
    except (StoreError, CopyFailed, OSError) as error:
        done = {"error": msgspec.to_builtins(Failure(name_failure(error), str(error)))}
    executable.send_to_parent({"done": done})
    return 0


def name_failure(error: BaseException) -> str:
    """Return the code of a failure: that of the store (`unreachable`, `refused`, `store_full`), or of this machine."""
    cause = error.__cause__ if isinstance(error, CopyFailed) and error.__cause__ is not None else error
    if isinstance(cause, StoreError):
        return name_error(cause)
    return "no_space" if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT) else "failed"


def _copy(directory: Path, copies: Copies) -> dict[str, Any]:
    manifest = create.create_copy(directory, copies, _make_reporter())
    try:
        prune.prune_copies(directory, copies)
        prune_error = ""
    except CopyFailed as error:
        prune_error = str(error)  # The copy is good; the next one deletes the surplus.
    with closing(open_store(copies.store, copies)) as store:
        entries = catalog.list_copies(store, keys.catalog_reader())
    stored = [
        StoredCopy(entry.id, entry.taken_at, entry.manifest.size, entry.manifest.kind == "full")
        for entry in entries
        if entry.manifest is not None
    ]
    result = CopyResult(manifest.id, manifest.taken_at, manifest.size, manifest.kind == "full", stored, prune_error)
    return dict(msgspec.to_builtins(result))


def _prove(directory: Path, copies: Copies) -> dict[str, Any]:
    return dict(msgspec.to_builtins(proof.prove_newest(directory, copies, _make_reporter())))


def _make_reporter() -> Callable[[str, float], None]:
    """Return a function that sends a step and its progress to the service, twice a second at most."""
    last_step, reported_at = "", 0.0

    def report(step: str, share: float) -> None:
        nonlocal last_step, reported_at
        now = time.monotonic()
        if step != last_step or now - reported_at >= _REPORT_SECONDS:
            last_step, reported_at = step, now
            executable.send_to_parent({"step": step.replace(" ", "_"), "share": min(1.0, max(0.0, share))})

    return report
