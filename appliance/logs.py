"""The log: one line an entry on stderr, for people or for machines, without secrets or link tokens."""

import json
import logging
import re
import sys
from datetime import UTC, datetime

# Paths of recipients' links and set-up links carry their secret in them
_TOKEN = re.compile(r"(/(?:u|p|d|v|c|o|setup|reset)/)[^\s\"'?]+")
_KEY = re.compile(r"camp_(live|test|pub)_[0-9A-Za-z]{6,}")
# Of webhooks (Standard Webhooks 1.0), and JWTs (RFC 7519): their headers are JSON, so they begin alike
_SECRET = re.compile(r"\b(?:whsec_[0-9A-Za-z+/=_-]{6,}|eyJ[\w-]{6,}\.[\w-]+\.[\w-]*)")


def clean(text: str) -> str:
    """Take link tokens, keys, tokens of sign-ins and secrets of webhooks out of a line."""
    return _SECRET.sub("…", _KEY.sub(r"camp_\1_…", _TOKEN.sub(r"\1…", text)))


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%d %H:%M:%S")
        line = f"{when} {record.levelname.lower():<7} {record.name}: {record.getMessage()}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return clean(line)


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(), "logger": record.name, "message": clean(record.getMessage()),
        }  # fmt: skip
        if record.exc_info:
            entry["trace"] = clean(self.formatException(record.exc_info))
        return json.dumps(entry, ensure_ascii=False)


def _is_ours(record: logging.LogRecord) -> bool:
    """Say whether a line is about us: a form that cannot be read is its sender's fault, and told to them."""
    return record.msg != "Failed when parsing form"


def start(level: str, form: str) -> None:
    """Send every log to stderr in one form; the libraries' own chatter only from warnings up."""
    handler = logging.StreamHandler(sys.stderr)
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
