"""The SMTP server for tests as a separate process, for benchmarks: `python -m tests.kit.smtp_sink --spool FILE`.

It prints its port, accepts everything, and writes envelopes and messages to the file when it ends.
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
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with SmtpServer() as server:
        if options.delay:
            server.rules.delay("body", options.delay)
        print(server.port, flush=True)
        stop.wait()
    with options.spool.open("w", encoding="utf-8") as spool:
        spool.write(json.dumps({"connections": server.connections, "peak": server.open_peak}) + "\n")
        for message in server.messages:
            record = [
                message.mail_from,
                message.rcpt_to,
                message.raw.decode("latin-1"),
                message.time,
                message.connection,
            ]
            spool.write(json.dumps(record) + "\n")


def read_spool(spool: Path) -> Iterator[Message]:
    """Yield the messages from the file of a process that has ended."""
    with spool.open(encoding="utf-8") as lines:
        next(lines)
        for line in lines:
            mail_from, rcpt_to, raw, time, connection = json.loads(line)
            yield Message(mail_from, rcpt_to, raw.encode("latin-1"), time, connection)


if __name__ == "__main__":
    main()
