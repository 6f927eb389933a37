"""The log: one line for each entry, as text or JSON, without secrets, link tokens and addresses.

It goes to stderr or to a file. The standard RotatingFileHandler rotates the file by size; logrotate may rotate it too,
and WatchedFileHandler, which reopens a moved file, cannot limit the size, so `_LogFileHandler` combines both.
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

# The paths of recipients' links and set-up links contain their secret.
_TOKEN = re.compile(r"(/(?:u|p|d|v|c|o|setup|reset)/)[^\s\"'?]+")
_KEY = re.compile(r"camp_(live|test|pub)_[0-9A-Za-z]{6,}")
# Secrets of webhooks (Standard Webhooks 1.0), and JWTs (RFC 7519), whose headers are JSON and therefore begin alike.
_SECRET = re.compile(r"\b(?:whsec_[0-9A-Za-z+/=_-]{6,}|eyJ[\w-]{6,}\.[\w-]+\.[\w-]*)")
# The local part of email addresses, and the password in the URL of a server.
_MAILBOX = re.compile(r"[^\s/<>\"'(),;:=&?\[\]{}|]+(@|%40)(?=[\w-]+\.\w|\[|localhost|\d)")
# Phone numbers; a range of numbers, with stars as its last digits, identifies no person and stays.
_PHONE = re.compile(r"(?<![\w.])(\+|%2B)[0-9]{7,15}(?![0-9*])")
# The attributes of every log record; all others are `extra` values of the caller.
_STANDARD_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


class LogFile(NamedTuple):
    """The log file: its path, its maximum size, and how many rotated files are kept."""

    path: Path
    max_bytes: int
    backup_count: int


def redact(text: str) -> str:
    """Replace link tokens, keys, secrets, email addresses and phone numbers in a line."""
    text = _SECRET.sub("…", _KEY.sub(r"camp_\1_…", _TOKEN.sub(r"\1…", text)))
    return _PHONE.sub(r"\1…", _MAILBOX.sub(r"…\1", text))


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time_text = datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%d %H:%M:%S")
        line = f"{time_text} {record.levelname.lower():<7} {record.name}: {record.getMessage()}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return redact(line)


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(), "logger": record.name, "message": redact(record.getMessage()),
        }  # fmt: skip
        added = {
            name: value
            for name, value in vars(record).items()
            if name not in _STANDARD_ATTRIBUTES and name not in entry
        }
        entry |= {name: _strip_control_characters(value) for name, value in added.items()}
        if record.exc_info:
            entry["trace"] = redact(self.formatException(record.exc_info))
        return json.dumps(entry, ensure_ascii=False)


def _strip_control_characters(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float) else redact(str(value))


class _LogFileHandler(logging.handlers.RotatingFileHandler):
    """A rotating file handler that opens a new file when another program moved the present one."""

    def __init__(self, log_file: LogFile) -> None:
        super().__init__(
            log_file.path, maxBytes=log_file.max_bytes, backupCount=log_file.backup_count, encoding="utf-8"
        )

    def _open(self) -> Any:
        handle = os.open(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        return os.fdopen(handle, "a", encoding="utf-8", errors="backslashreplace")

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._reopen_if_moved()
        except OSError:
            self.handleError(record)
            return
        super().emit(record)

    def _reopen_if_moved(self) -> None:
        stream: TextIO | None = self.stream
        try:
            status = Path(self.baseFilename).stat()
            if stream is not None and os.path.samestat(status, os.fstat(stream.fileno())):
                return
        except FileNotFoundError:
            pass
        if stream is not None:
            stream.close()
        self.stream = self._open()

    def reopen(self) -> None:
        """Open the file again if it was moved or removed."""
        with self.lock or threading.RLock():
            try:
                self._reopen_if_moved()
            except OSError as error:
                print(f"campanero: the log cannot be opened: {error}", file=sys.stderr)

    def handleError(self, record: logging.LogRecord) -> None:
        """Write the record to stderr if the file cannot be written."""
        print(self.format(record), file=sys.stderr)


def _is_own_record(record: logging.LogRecord) -> bool:
    """Return whether a record concerns the operator; an unreadable form is an error of its sender, who is answered."""
    return record.msg != "Failed when parsing form"


def configure(level: str, form: str, log_file: LogFile | None = None) -> None:
    """Send all logs to stderr or a file in one format; those of libraries from level warning.

    Raises OSError for a file that cannot be written. SIGHUP reopens the file after a rotation by another program.
    """
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    if log_file is not None:
        handler = file = _LogFileHandler(log_file)
        # The signal may interrupt the writing of a line, so the file is reopened on another thread.
        signal.signal(signal.SIGHUP, lambda *_: threading.Thread(target=file.reopen, name="log").start())
    handler.setFormatter(_JsonFormatter() if form == "json" else _TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("campanero").setLevel(level.upper())
    for name in ("huey", "mail.log", "sanic.root", "sanic.error", "sanic.access", "sanic.server"):
        logger = logging.getLogger(name)
        logger.handlers[:] = []
        logger.propagate = True
        logger.setLevel(logging.WARNING)
    logging.getLogger("sanic.error").addFilter(_is_own_record)
