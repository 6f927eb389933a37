"""The SMTP server of the kit as a process of its own, for measuring: `python -m tests.kit.smtp_sink --spool FILE`.

Prints its port, takes everything, and writes envelopes and messages to the file when it is told to end.
"""

import argparse
import asyncio
import json
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import uvloop

from tests.kit.smtp import SmtpServer
from tests.kit.smtp_message import Message


def main() -> None:
    """Serve until SIGTERM, then write the spool."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spool", type=Path, required=True)
    parser.add_argument("--delay", type=float, default=0, help="seconds before the answer to each message")
    options = parser.parse_args()
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    with SmtpServer() as server:
        if options.delay:
            server.rules.delay("body", options.delay)
        print(server.port, flush=True)
        ended.wait()
    with options.spool.open("w", encoding="utf-8") as spool:
        spool.write(json.dumps({"connections": server.connections, "peak": server.open_peak}) + "\n")
        for message in server.messages:
            kept = [message.mail_from, message.rcpt_to, message.raw.decode("latin-1"), message.time, message.connection]
            spool.write(json.dumps(kept) + "\n")


def read_spool(spool: Path) -> Iterator[Message]:
    """Yield the messages of an ended sink."""
    with spool.open(encoding="utf-8") as lines:
        next(lines)
        for line in lines:
            mail_from, rcpt_to, raw, time, connection = json.loads(line)
            yield Message(mail_from, rcpt_to, raw.encode("latin-1"), time, connection)


if __name__ == "__main__":
    main()
