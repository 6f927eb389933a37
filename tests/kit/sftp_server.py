"""An SFTP server for tests on a loopback port, by asyncssh, with its files in a directory."""

import asyncio
import threading
from pathlib import Path
from typing import Any, Self

import asyncssh

from appliance.settings.copies import Copies, Sftp

PASSWORD = "of the test"


class _Server(asyncssh.SSHServer):
    def __init__(self, user_key: asyncssh.SSHKey) -> None:
        self._user_key = user_key

    def public_key_auth_supported(self) -> bool:
        return True

    def password_auth_supported(self) -> bool:
        return True

    def validate_password(self, username: str, password: str) -> bool:
        return (username, password) == ("copies", PASSWORD)

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return username == "copies" and key.public_data == self._user_key.public_data


class _Files(asyncssh.SFTPServer):
    full = stalled = False

    async def lstat(self, path: bytes) -> Any:
        while _Files.stalled:
            await asyncio.sleep(0.05)
        return super().lstat(path)

    def write(self, file_obj: object, offset: int, data: bytes) -> Any:
        if _Files.full:
            raise asyncssh.SFTPFailure("No space left on device")
        return super().write(file_obj, offset, data)


class SftpServer:
    """A thread that serves a directory; use it as a context manager."""

    def __init__(self, directory: Path) -> None:
        self.root, self._directory = directory / "files", directory
        self.root.mkdir(parents=True)
        self._host_key, self._user_key = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
        self.key_file = directory / "id_ed25519"
        self.key_file.write_bytes(self._user_key.export_private_key())

    def __enter__(self) -> Self:
        started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(started)), daemon=True)
        self._thread.start()
        started.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    @property
    def is_full(self) -> bool:
        """Whether the disk of the server is full."""
        return _Files.full

    @is_full.setter
    def is_full(self, value: bool) -> None:
        _Files.full = value

    @property
    def is_stalled(self) -> bool:
        """Whether the server answers no question about a file."""
        return _Files.stalled

    @is_stalled.setter
    def is_stalled(self, value: bool) -> None:
        _Files.stalled = value

    @property
    def store_url(self) -> str:
        """The URL of a store in the directory."""
        return f"sftp://copies@127.0.0.1:{self.port}/store"

    def settings(self, **changes: Any) -> Copies:
        """Return settings of copies that go to this server, with another login by `changes`."""
        host_key = " ".join(self._host_key.export_public_key().decode().split()[:2])
        sftp = Sftp(**({"key_file": str(self.key_file), "host_key": host_key} | changes))
        return Copies(store=self.store_url, sftp=sftp)

    def drop_connections(self) -> None:
        """End all connections at once."""
        self._loop.call_soon_threadsafe(lambda: [connection.abort() for connection in self._connections])

    async def _serve(self, started: threading.Event) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        self._connections: list[asyncssh.SSHServerConnection] = []

        def accept(connection: asyncssh.SSHServerConnection) -> None:
            self._connections.append(connection)

        listener = await asyncssh.listen(
            "127.0.0.1", 0, server_factory=lambda: _Server(self._user_key), server_host_keys=[self._host_key],
            sftp_factory=lambda channel: _Files(channel, chroot=str(self.root).encode()), acceptor=accept,
        )  # fmt: skip
        self.port = listener.get_port()
        started.set()
        await self._stopping.wait()
        listener.close()
        for connection in self._connections:
            connection.abort()
