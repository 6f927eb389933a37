"""Listens for mail that comes back, on a thread and a loop of its own: whatever floods it, pages and API go on."""

import asyncio
import logging
import socket
import threading
from urllib.parse import urlsplit

from appliance import certificates, config
from appliance.inbound.crowd import Crowd
from appliance.settings import Config

log = logging.getLogger("campanero.inbound")


class Listener:
    """The listener of one process; does nothing where none is configured."""

    def __init__(self, here: Config) -> None:
        self._here = here
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._ready = threading.Event()
        self._socket: socket.socket | None = None
        self.certificate: certificates.Shown | None = None
        self.crowd = Crowd()

    def bind(self) -> None:
        """Take the address, before anything else begins. Raises OSError if it or the certificate is not to be had."""
        if not self._here.inbound.listen:
            return
        host, _, port = self._here.inbound.listen.rpartition(":")
        host = host.strip("[]")
        self.certificate = _certificate(self._here)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._socket = socket.create_server((host, int(port)), family=family, backlog=200)
        except OSError as error:
            raise OSError(error.errno, f"inbound.listen: {self._here.inbound.listen}: {error.strerror}") from None

    def start(self) -> None:
        """Begin to listen; returns when mail is taken."""
        if self._socket is None:
            return
        self._thread = threading.Thread(target=self._run, name="inbound", daemon=True)
        self._thread.start()
        self._ready.wait()

    def stop(self) -> None:
        """Take no more mail; what was not answered will be brought again."""
        if self._thread is None or self._loop is None or self._stopping is None:
            return
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(5.0)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        from appliance.inbound.desk import Desk
        from appliance.inbound.session import Session

        assert self._socket is not None
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        name = self._here.email.direct.helo or urlsplit(config.base_url(self._here)).hostname or "localhost"
        desk, tls = Desk(), self.certificate.context if self.certificate is not None else None
        server = await self._loop.create_server(
            lambda: Session(desk, self.crowd, name, tls), sock=self._socket, backlog=200
        )
        log.info("mail that comes back is taken on %s", self._here.inbound.listen)
        self._ready.set()
        await self._stopping.wait()
        server.close()
        desk.close()


def _certificate(here: Config) -> certificates.Shown | None:
    """Return what conversations are encrypted with; None without a certificate. Raises OSError for a bad one."""
    if not here.inbound.tls_certificate:
        return None
    return certificates.Shown("inbound.tls_certificate", here.inbound.tls_certificate, here.inbound.tls_key, web=False)
