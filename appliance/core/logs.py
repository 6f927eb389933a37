"""The log: one line an entry, for people or for machines, without secrets, link tokens or anybody's address.

It goes to stderr, or into a file that puts itself aside when it is large, and that others may put aside too.
"""

import json
import logging
import logging.handlers
import os
import re
import signal
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, TextIO

# Paths of recipients' links and set-up links carry their secret in them
_TOKEN = re.compile(r"(/(?:u|p|d|v|c|o|setup|reset)/)[^\s\"'?]+")
_KEY = re.compile(r"camp_(live|test|pub)_[0-9A-Za-z]{6,}")
# Of webhooks (Standard Webhooks 1.0), and JWTs (RFC 7519): their headers are JSON, so they begin alike
_SECRET = re.compile(r"\b(?:whsec_[0-9A-Za-z+/=_-]{6,}|eyJ[\w-]{6,}\.[\w-]+\.[\w-]*)")
# Whose mailbox it is nobody needs to know, nor the password in an address of a server
_MAILBOX = re.compile(r"[^\s/<>\"'(),;:=&?\[\]{}|]+(@|%40)(?=[\w-]+\.\w|\[|localhost|\d)")
# A range of numbers, its last digits as stars, is nobody's
_PHONE = re.compile(r"(?<![\w.])(\+|%2B)[0-9]{7,15}(?![0-9*])")
# What every record has; the rest is what somebody added to theirs
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


class Kept(NamedTuple):
    """The file of the log: where it is, how large it may get, and how many are kept that were put aside."""

    path: Path
    most_bytes: int
    files: int


def clean(text: str) -> str:
    """Take out of a line what opens something (link tokens, keys, secrets), and whose mailbox or number it names."""
    text = _SECRET.sub("…", _KEY.sub(r"camp_\1_…", _TOKEN.sub(r"\1…", text)))
    return _PHONE.sub(r"\1…", _MAILBOX.sub(r"…\1", text))


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%d %H:%M:%S")
        line = f"{when} {record.levelname.lower():<7} {record.name}: {record.getMessage()}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return clean(line)


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(), "logger": record.name, "message": clean(record.getMessage()),
        }  # fmt: skip
        added = {name: value for name, value in vars(record).items() if name not in _USUAL and name not in entry}
        entry |= {name: _plain(value) for name, value in added.items()}
        if record.exc_info:
            entry["trace"] = clean(self.formatException(record.exc_info))
        return json.dumps(entry, ensure_ascii=False)


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float) else clean(str(value))


class _File(logging.handlers.RotatingFileHandler):
    """Writes into a file of our own; one that somebody moved away is left to them, and a new one begun."""

    def __init__(self, kept: Kept) -> None:
        super().__init__(kept.path, maxBytes=kept.most_bytes, backupCount=kept.files, encoding="utf-8")

    def _open(self) -> Any:
        handle = os.open(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        return os.fdopen(handle, "a", encoding="utf-8", errors="backslashreplace")

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._see()
        except OSError:
            self.handleError(record)
            return
        super().emit(record)

    def _see(self) -> None:
        here: TextIO | None = self.stream
        try:
            there = Path(self.baseFilename).stat()
            if here is not None and os.path.samestat(there, os.fstat(here.fileno())):
                return
        except FileNotFoundError:
            pass
        if here is not None:
            here.close()
        self.stream = self._open()

    def reopen(self) -> None:
        """See at once whether the file is still the one that has its name."""
        with self.lock or threading.RLock():
            try:
                self._see()
            except OSError as error:
                print(f"campanero: the log cannot be opened: {error}", file=sys.stderr)

    def handleError(self, record: logging.LogRecord) -> None:
        """Say on stderr what cannot be kept; a log that cannot be written stops nobody."""
        print(self.format(record), file=sys.stderr)


def _is_ours(record: logging.LogRecord) -> bool:
    """Return whether a line is about us: a form that cannot be read is its sender's fault, and told to them."""
    return record.msg != "Failed when parsing form"


def start(level: str, form: str, kept: Kept | None = None) -> None:
    """Send every log to stderr or a file in one form; the libraries' own chatter only from warnings up.

    Raises OSError for a file that cannot be written. SIGHUP says that the file was put aside.
    """
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    if kept is not None:
        handler = file = _File(kept)
        # The signal may come in the middle of a line, so another thread looks
        signal.signal(signal.SIGHUP, lambda *_: threading.Thread(target=file.reopen, name="log").start())
    handler.setFormatter(_Json() if form == "json" else _Text())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("campanero").setLevel(level.upper())
    for name in ("huey", "mail.log", "sanic.root", "sanic.error", "sanic.access", "sanic.server"):
        logger = logging.getLogger(name)
        logger.handlers[:] = []
        logger.propagate = True
        logger.setLevel(logging.WARNING)
    logging.getLogger("sanic.error").addFilter(_is_ours)
