"""Litestream as a process beside a server under test, which replicates to a directory or to an S3 server of a test."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

import yaml

from tests.kit.s3_server import REGION, S3Server

PROGRAM = str(Path(sys.executable).with_name("litestream"))
_UNIT_CONFIG = Path(__file__).resolve().parents[2] / "packaging" / "litestream" / "litestream.yml"


def environment(s3: S3Server | None) -> dict[str, str]:
    """Return the environment of Litestream; a bundle of certificates keeps it from starting with an http endpoint."""
    names = {name: value for name, value in os.environ.items() if name != "AWS_CA_BUNDLE"}
    if s3 is not None:
        names |= {"LITESTREAM_ACCESS_KEY_ID": s3.access_key_id, "LITESTREAM_SECRET_ACCESS_KEY": s3.secret_access_key}
    return names


class Litestream:
    """A Litestream with the configuration of `packaging/litestream`; only paths and the replica differ."""

    def __init__(self, database: Path, home: Path, replica: str, s3: S3Server | None = None) -> None:
        home.mkdir(exist_ok=True)
        self.home, self.socket = home, home / "ls.sock"
        self._replica, self._s3 = replica, s3
        settings = yaml.safe_load(_UNIT_CONFIG.read_text())
        settings["socket"]["path"] = str(self.socket)
        [entry] = settings["dbs"]
        entry["path"] = str(database)
        if s3 is None:
            entry["replica"] = {"type": "file", "path": str(home / replica), "sync-interval": "500ms"}
        else:
            entry["replica"] |= {
                "bucket": s3.bucket, "path": replica, "region": REGION, "endpoint": s3.url, "force-path-style": True
            }  # fmt: skip
        (home / "litestream.yml").write_text(yaml.safe_dump(settings))
        self._process: subprocess.Popen[bytes] | None = None
        self._log = (home / "litestream.log").open("ab")

    @property
    def source(self) -> str:
        """The URL of the replica, for `campanero follow`."""
        return f"s3://{self._s3.bucket}/{self._replica}" if self._s3 else (self.home / self._replica).as_uri()

    def start(self) -> Self:
        """Start the process, and wait until its control socket is there."""
        self.socket.unlink(missing_ok=True)
        command = [PROGRAM, "replicate", "-config", str(self.home / "litestream.yml")]
        self._process = subprocess.Popen(command, env=environment(self._s3), stdout=self._log, stderr=self._log)
        end = time.monotonic() + 20
        while not self.socket.exists():
            assert time.monotonic() < end and self._process.poll() is None, self.output
            time.sleep(0.02)
        return self

    @property
    def output(self) -> str:
        """The log."""
        return (self.home / "litestream.log").read_text()

    def kill(self) -> None:
        """Kill the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """End the process, which copies the rest before."""
        if self._process is not None:
            self._process.terminate()
            assert self._process.wait(40) == 0, self.output
            self._process = None

    def restore(self, target: Path) -> None:
        """Restore the newest state into a new file, and check it."""
        command = [PROGRAM, "restore", "-integrity-check", "full", "-o", str(target), self._url()]
        done = subprocess.run(command, env=environment(self._s3), capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr

    def _url(self) -> str:
        if self._s3 is None:
            return self.source
        return f"{self.source}?endpoint={self._s3.url}&region={REGION}&forcePathStyle=true"

    def close(self) -> None:
        """Kill the process and remove its files."""
        self.kill()
        self._log.close()
        shutil.rmtree(self.home, ignore_errors=True)
