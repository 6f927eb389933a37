"""The support bundle: one file that describes an installation, without secrets and personal data.

It is for outsiders who help with a problem. Texts are redacted by `logs.redact`, like the log, and rows of tables are
only counted. Each part is collected independently, so the bundle of a damaged installation still has the other parts.
"""

import argparse
import io
import json
import os
import platform
import re
import shutil
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import msgspec

from appliance import VERSION
from appliance.core import clock, executable, logs
from appliance.core.data_dir import create_file
from appliance.core.errors import Refused
from appliance.settings import config
from appliance.settings.config import LoadedConfig
from appliance.storage.database import rows, scalar

if TYPE_CHECKING:
    from appliance.ops.doctor.checks import Finding

# The maximum number of bytes of each log file, from its end, that are included.
MAX_LOG_BYTES = 2_000_000
_README = """This is a support bundle of Campanero {version}, written at {time}.

  about.json      versions, system, processors, memory, disk
  settings.txt    the configuration; secrets are ***, and names before the @ of addresses are left out
  doctor.json     the findings of campanero doctor
  status.json     queue, today's numbers and storage, without names of campaigns
  metrics.txt     numbers of queue, process and storage in the format of Prometheus
  database.json   number of rows of each table, settings of SQLite
  logs/           the end of the log files, if the service writes any

It contains no contacts, no texts of messages, no passwords and no keys. It does contain host names and sending domains.
Of URLs only the host is left, because a path may be a secret.
Everything is plain text: read it before you pass it on.
"""
# The part of a URL after the host: the path and query of a webhook, an SMS gateway or a store may be secrets.
_LOCATION = re.compile(r"(\b(?!file:)[a-z][a-z0-9+.-]{0,20}://[^\s\"'<>/?#]{1,300}[/?#])[^\s\"'<>]+", re.IGNORECASE)
_PRAGMAS = ("user_version", "page_size", "page_count", "freelist_count", "journal_mode", "synchronous", "auto_vacuum")


class BundleFailed(Refused):
    """The support bundle cannot be written; the message is the reason."""

    code = "not_done"


def add_command(
    top: Any, command: Callable[..., Any], load: Callable[[argparse.Namespace], LoadedConfig],
    run_doctor: Callable[[argparse.Namespace], Iterator["Finding"]],
) -> None:  # fmt: skip
    """Add the command `support-bundle` to the subparsers `top`.

    `command` adds one command; `load` loads the configuration, and `run_doctor` yields the findings of `doctor`.
    """

    def run(options: argparse.Namespace) -> None:
        if os.path.lexists(options.file):
            raise BundleFailed(f"{options.file} already exists: choose the name of a new file")
        if not options.file.absolute().parent.is_dir():
            raise BundleFailed(f"{options.file.absolute().parent} is not a directory: create it first")
        parts = write_bundle(
            load(options), options.file.absolute(), lambda: [finding._asdict() for finding in run_doctor(options)]
        )
        print(f"{options.file}: {', '.join(parts)}")
        print("It contains no contacts, messages, passwords or keys. Read it before you pass it on.")

    parser = command(top, "support-bundle", run, "write a file for those who help you, without secrets and contacts")
    parser.add_argument("file", metavar="FILE", type=Path, help="a new file, such as support.tar.gz")
    parser.set_defaults(seed=False, account=None, tenant=False)


def write_bundle(loaded: LoadedConfig, target: Path, read_findings: Callable[[], list[dict[str, Any]]]) -> list[str]:
    """Write the support bundle into the new file `target` (a gzipped tar), and return the names of its parts.

    `read_findings` runs `campanero doctor`, which opens the database, and returns its findings. If the database cannot
    be read, the parts that need it contain the reason. Raises FileExistsError if the file exists, and OSError.
    """
    from appliance.ops import metrics

    directory = Path(loaded.config.data_dir)
    # The first part opens the database.
    parts: dict[str, Callable[[], str]] = {
        "doctor.json": lambda: _to_json(read_findings()),
        "about.json": lambda: _to_json(_describe_machine(directory)),
        "settings.txt": lambda: "".join(f"{line}\n" for line in config.describe_settings(loaded)),
        "status.json": lambda: _to_json(_describe_status(loaded)),
        "metrics.txt": lambda: metrics.render_metrics(None),
        "database.json": lambda: _to_json(_describe_database()),
    }
    texts = {"README.txt": _README.format(version=VERSION, time=clock.iso(clock.now_ms()))}
    texts |= {name: _redact_lines(_collect(collect)) for name, collect in parts.items()}
    texts |= dict(_read_logs(directory, loaded.config.log.file))
    with create_file(target) as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, text in texts.items():
            content = text.encode()
            entry = tarfile.TarInfo(f"campanero-support/{name}")
            entry.size, entry.mtime, entry.mode = len(content), int(time.time()), 0o600
            archive.addfile(entry, io.BytesIO(content))
    return list(texts)


def _collect(collect: Callable[[], str]) -> str:
    """Return a part, or the reason why it cannot be collected: a bundle is needed most if something is broken."""
    try:
        return collect()
    except Exception as error:
        return f"not available: {type(error).__name__}: {error}\n"


def _redact_lines(text: str) -> str:
    return "".join(_LOCATION.sub(r"\1…", logs.redact(line)) for line in text.splitlines(keepends=True))


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1) + "\n"


def _describe_machine(directory: Path) -> dict[str, Any]:
    system = platform.freedesktop_os_release()
    disk = shutil.disk_usage(directory)
    return {
        "version": VERSION,
        "is_executable": bool(getattr(sys, "frozen", False)),
        "components": executable.list_components(),
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "system": system.get("PRETTY_NAME", "unknown"),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "processors": len(os.sched_getaffinity(0)),
        "load": os.getloadavg(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "disk_bytes": disk.total,
        "disk_free_bytes": disk.free,
        "time_utc": clock.iso(clock.now_ms()),
        "time_zone": time.tzname[0],
        "files": _measure_files(directory),
    }


def _measure_files(directory: Path) -> dict[str, int]:
    """Return the size in bytes of each entry of the data directory; a directory has the size of all files in it."""
    sizes = {}
    for path in sorted(directory.iterdir()):
        files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
        sizes[path.name] = sum(file.stat().st_size for file in files)
    return sizes


def _describe_status(loaded: LoadedConfig) -> dict[str, Any]:
    from appliance.ops import status

    values: dict[str, Any] = msgspec.to_builtins(status.collect_status(loaded.config))
    for task in values["tasks"]:
        del task["name"]
    # The reasons contain the names of accounts.
    return values | {"stopped": len(values["stopped"])}


def _describe_database() -> dict[str, Any]:
    tables = [
        row[0]
        for row in rows(
            "SELECT name FROM pragma_table_list WHERE type = 'table' AND schema = 'main' "
            "AND name NOT LIKE 'sqlite_%' ORDER BY name"
        )
    ]
    return {
        "pragmas": {name: scalar(f"PRAGMA {name}") for name in _PRAGMAS},
        "rows": {table: scalar(f'SELECT count(*) FROM "{table}"') for table in tables},
    }


def _read_logs(directory: Path, name: str) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of the log file and its rotated files, with the last `MAX_LOG_BYTES` bytes of each."""
    if not name:
        yield "logs/README.txt", "The log goes to stderr. With systemd: journalctl -u campanero --since -2d\n"
        return
    path = directory / name
    for file in sorted(path.parent.glob(f"{path.name}*")):
        with file.open("rb") as stream:
            stream.seek(max(0, file.stat().st_size - MAX_LOG_BYTES))
            yield f"logs/{file.name}", _redact_lines(stream.read().decode(errors="replace"))
