"""The log of the program, as text or JSON lines, without secrets, link tokens, email addresses and phone numbers.

It is written to stderr or to a file. The file is rotated by size, and logrotate may rotate it too. RotatingFileHandler
does not reopen a file that logrotate has moved, and WatchedFileHandler cannot limit the size, so `_LogFileHandler` does
both.
"""

import json
import logging
import logging.handlers
import math
import os
import re
import signal
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from appliance.core.errors import Unavailable

# The paths of links in messages, of the first set-up, of password resets and of invitations end in a secret.
_TOKEN = re.compile(r"(/(?:u|p|d|v|c|o|setup|reset|invitations/[0-9]+)/)[^\s\"'?]+")
# Control characters (C0 but the tab, C1) and the line separators of Unicode: a text of a client, a mail server or a
# provider must not begin a line that looks like another entry, or change the terminal that shows it.
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")
_KEY = re.compile(r"camp_(live|test|pub)_[0-9A-Za-z]{6,}")
# Secrets of webhooks (Standard Webhooks 1.0), and JWTs (RFC 7519), which begin with "eyJ", the base64 of `{"`. The
# first part of a JWT is bounded, because a text such as `eyJ-eyJ-…` has many places where one could begin.
_SECRET = re.compile(r"\b(?:whsec_[0-9A-Za-z+/=_-]{6,}|eyJ[\w-]{6,500}\.[\w-]+\.[\w-]*)")
# The local part of an email address, or the user and password in a URL. A match begins where no such character
# precedes: otherwise each character of a long text without "@" would be tried, which takes time by the square.
_MAILBOX = re.compile(
    r"(?<![^\s/<>\"'(),;:=&?\[\]{}|])[^\s/<>\"'(),;:=&?\[\]{}|]+(@|%40)(?=[\w-]+\.\w|\[|localhost|\d)"
)
# Phone numbers. A range of numbers, whose last digits are stars, identifies no person and is not redacted.
_PHONE = re.compile(r"(?<![\w.])(\+|%2B)[0-9]{7,15}(?![0-9*])")
# Longer messages and tracebacks are cut: they contain what a client sent.
_MAX_CHARACTERS = 65_536
# The interval at which an error that a job repeats is logged again.
REPEAT_SECONDS = 60.0
_MAX_ERROR_CHARACTERS, _MAX_KNOWN_ERRORS = 1_000, 20
# The attributes of every log record; all others are `extra` values of the caller.
_STANDARD_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


class LogFile(NamedTuple):
    """The settings of the log file: its path, the size at which it is rotated, and how many rotated files are kept."""

    path: Path
    max_bytes: int
    backup_count: int


def redact(text: str) -> str:
    """Replace link tokens, API keys, secrets, local parts of email addresses, and phone numbers in a text with `…`.

    A text of more than `_MAX_CHARACTERS` is cut.
    """
    if len(text) > _MAX_CHARACTERS:
        # It is cut between two words, so that no address is cut before its "@", by which it is recognised.
        text = f"{text[:_MAX_CHARACTERS].rpartition(' ')[0]} … ({len(text)} characters)"
    text = _SECRET.sub("…", _KEY.sub(r"camp_\1_…", _TOKEN.sub(r"\1…", text)))
    return _PHONE.sub(r"\1…", _MAILBOX.sub(r"…\1", text))


class RepeatedErrors:
    """Logs the errors of a repeated job without filling the log if it fails every time.

    The first error is logged with its traceback; Unavailable needs none. After that, an error with a text that was not
    logged in the last minute gets a line, and the others are counted in one line a minute. After a minute without
    errors, the next one counts as the first.
    """

    def __init__(self, logger: logging.Logger, message: str) -> None:
        self._logger, self._message = logger, message
        self._logged_texts: set[str] = set()
        self._count = 0
        self._last_at, self._next_at = -math.inf, 0.0

    def log(self, error: BaseException) -> None:
        """Log an error, or only count it."""
        now, text = time.monotonic(), f"{type(error).__name__}: {error}"[:_MAX_ERROR_CHARACTERS]
        is_first, self._last_at = now > self._last_at + REPEAT_SECONDS, now
        self._count = 0 if is_first else self._count + 1
        is_known = text in self._logged_texts or len(self._logged_texts) >= _MAX_KNOWN_ERRORS
        if not is_first and is_known and now < self._next_at:
            return
        if is_first and not isinstance(error, Unavailable):
            self._logger.error(self._message, exc_info=error)
        else:
            self._logger.error("%s: %s count=%s", self._message, text, max(1, self._count))
            self._count = 0
        if is_first or now >= self._next_at:
            self._logged_texts, self._next_at = set(), now + REPEAT_SECONDS
        self._logged_texts.add(text)


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time_text = datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%d %H:%M:%S")
        lines = [f"{time_text} {record.levelname.lower():<7} {record.name}: {redact(record.getMessage())}"]
        if record.exc_info:
            # The text of an exception may have lines too, so those of a traceback are indented.
            lines += [f"  {line}" for line in redact(self.formatException(record.exc_info)).split("\n")]
        return "\n".join(_CONTROL_CHARACTERS.sub(_escape, line) for line in lines)


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
        entry |= {name: _redact_value(value) for name, value in added.items()}
        if record.exc_info:
            entry["trace"] = redact(self.formatException(record.exc_info))
        return json.dumps(entry, ensure_ascii=False)


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()


def _redact_value(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float) else redact(str(value))


class _LogFileHandler(logging.handlers.RotatingFileHandler):
    """A rotating file handler that opens a new file after another program has moved or removed the current one."""

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
        """Open the file again if it was moved or removed; print an error to stderr if that fails."""
        with self.lock or threading.RLock():
            try:
                self._reopen_if_moved()
            except OSError as error:
                print(f"campanero: the log cannot be opened: {error}", file=sys.stderr)

    def handleError(self, record: logging.LogRecord) -> None:
        """Write a record to stderr that could not be written to the file."""
        print(self.format(record), file=sys.stderr)


def configure(level: str, form: str, log_file: LogFile | None = None) -> None:
    """Write all logs to a file, or to stderr without `log_file`; `form` is `json` or `text`.

    `level` applies to the loggers of Campanero; libraries log from level warning. With a file, SIGHUP reopens it after
    logrotate has moved it. Raises OSError if the file cannot be opened.
    """
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    if log_file is not None:
        handler = file = _LogFileHandler(log_file)
        # The signal may interrupt this thread while it writes a line, so another thread reopens the file.
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
