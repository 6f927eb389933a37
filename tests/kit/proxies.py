"""Run nginx or Caddy from Debian's packages with the example of the guide; only ports, names and paths differ."""

import atexit
import shutil
import socket
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Self

from tests.kit.certificates import Certificate
from tests.kit.server import free_port

# The address and domain in the examples of the guide
_EXAMPLE_ADDRESS, _EXAMPLE_DOMAIN = "127.0.0.1:8080", "mail.example.com"
_LETSENCRYPT = f"/etc/letsencrypt/live/{_EXAMPLE_DOMAIN}/"


@cache
def find_proxy(name: str) -> str | None:
    """Return the path of a proxy, installed or unpacked from Debian's package, or None if there is neither.

    The package is unpacked and not installed, because an installed proxy would listen on ports of this machine.
    """
    installed = shutil.which(name, path="/usr/local/sbin:/usr/sbin:/usr/local/bin:/usr/bin")
    if installed or not shutil.which("apt-get"):
        return installed
    directory = Path(tempfile.mkdtemp(prefix="campanero-proxy-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    try:
        subprocess.run(
            ["apt-get", "download", "-qq", name], cwd=directory, check=True, capture_output=True, timeout=180
        )
        package = next(directory.glob("*.deb"))
        subprocess.run(["dpkg-deb", "-x", package, directory], check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.SubprocessError, StopIteration):
        return None
    return next((str(path) for path in directory.glob(f"usr/*bin/{name}")), None)


class Proxy:
    """A proxy in front of a server under test, configured with the example of the guide."""

    def __init__(self, name: str, example: str, to: int, pair: Certificate) -> None:
        self.name = name
        self.home = Path(tempfile.mkdtemp(prefix="campanero-proxy-"))
        self.port, self.plain_port = free_port(), free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        (self.home / "fullchain.pem").write_bytes(pair.certificate)
        (self.home / "privkey.pem").write_bytes(pair.key)
        assert _EXAMPLE_ADDRESS in example and _EXAMPLE_DOMAIN in example
        example = example.replace(_EXAMPLE_ADDRESS, f"127.0.0.1:{to}")
        self._command = {"nginx": self._nginx, "caddy": self._caddy}[name](str(find_proxy(name)), example)

    def _nginx(self, program: str, example: str) -> list[str]:
        example = example.replace(_LETSENCRYPT, f"{self.home}/").replace(_EXAMPLE_DOMAIN, "127.0.0.1")
        for usual, port in ((80, self.plain_port), (443, self.port)):
            example = example.replace(f"[::]:{usual}", f"[::1]:{port}" if _has_ipv6() else f"127.0.0.9:{port}")
            example = example.replace(f"listen {usual}", f"listen 127.0.0.1:{port}")
        temporary_paths = " ".join(
            f"{kind}_temp_path {self.home}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        (self.home / "nginx.conf").write_text(
            f"daemon off; pid {self.home}/pid; error_log {self.home}/log; events {{}}\n"
            f"http {{ access_log off; {temporary_paths}\n{example}\n}}\n"
        )
        # Run as the user of the tests: the user of the package may not enter the directory
        user = ["-g", "user root;"] if Path("/proc/self").stat().st_uid == 0 else []
        return [program, "-e", f"{self.home}/log", "-c", f"{self.home}/nginx.conf", *user]

    def _caddy(self, program: str, example: str) -> list[str]:
        tls = f"tls {self.home}/fullchain.pem {self.home}/privkey.pem"
        example = example.replace(f"{_EXAMPLE_DOMAIN} {{", f"{self.url} {{\n\t{tls}")
        (self.home / "Caddyfile").write_text(f"{{\n\tadmin off\n\tauto_https disable_redirects\n}}\n{example}\n")
        return [program, "run", "--config", f"{self.home}/Caddyfile"]

    def __enter__(self) -> Self:
        with (self.home / "said").open("wb") as log:
            env = {"HOME": str(self.home), "XDG_DATA_HOME": str(self.home), "XDG_CONFIG_HOME": str(self.home)}
            self._process = subprocess.Popen(
                self._command, cwd=self.home, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        end = time.monotonic() + 30
        while not self._listens():
            assert self._process.poll() is None and time.monotonic() < end, self.output
            time.sleep(0.05)
        return self

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    @property
    def output(self) -> str:
        """Return the output and the log of the proxy."""
        texts = [path.read_text(errors="replace") for name in ("said", "log") if (path := self.home / name).exists()]
        return "\n".join(texts)

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(30)
        shutil.rmtree(self.home, ignore_errors=True)


def _has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True
