"""An HTTPS port in front of an HTTP server for tests, whose handshakes wait until they are released.

For example::

    with SlowTls(sms.port, tmp_path) as front:
        server = fresh_server(env=sms.env | front.trust | {"CAMPANERO_SMS__TWILIO__BASE_URL": front.url})
        front.wait_reached()
        front.release()
"""

import asyncio
import threading
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.kit.certificates import self_signed
from tests.kit.smtp_rules import Gate


class SlowTls(Gate):
    """Accepts connections at once, and begins their handshakes after `release()`; then it copies bytes both ways."""

    def __init__(self, to: int, directory: Path) -> None:
        super().__init__()
        pair = self_signed()
        self._to, self._context, self._certificate = to, pair.context(), directory / "slow-tls.pem"
        self._certificate.write_bytes(pair.certificate)

    @property
    def trust(self) -> dict[str, str]:
        """Return the environment of a process that trusts the certificate of this port."""
        return {"SSL_CERT_FILE": str(self._certificate)}

    def __enter__(self) -> Self:
        started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(started)), daemon=True)
        self._thread.start()
        started.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    async def _serve(self, started: threading.Event) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        self.url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        started.set()
        await self._stopping.wait()
        server.close()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # the handshake reads the first bytes
        await self.wait_until_open()
        with suppress(OSError):
            await writer.start_tls(self._context)
            to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self._to)
            await asyncio.gather(_copy(reader, to_writer), _copy(to_reader, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()
