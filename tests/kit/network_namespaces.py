"""Machines of their own network on this one: network namespaces whose links to a shared place can be cut.

Each machine has two links to the place, which stands for the network between them: one for everything, and one for the
store alone. Packets of a link that is cut vanish, as in a real partition: nobody gets an error. All addresses exist on
this machine only. It needs root (`ip netns`, see ip-netns(8)).
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.kit.server import READY, Server

PLACE, STORE = "10.231.0.1", "10.231.0.2"  # addresses of this machine, reached by the links
_PREFIX = "cmp"


class NotPermitted(Exception):
    """This machine does not permit network namespaces; the message is the error of `ip`."""


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode:
        raise NotPermitted(f"ip {' '.join(words)}: {done.stderr.strip()}")


class Namespace:
    """A network namespace with a link for everything, and one for the store."""

    def __init__(self, number: int) -> None:
        self.number, self.name = number, f"{_PREFIX}{number}"
        self.address = self._address("link", 2)

    def _address(self, link: str, end: int) -> str:
        return f"10.{232 if link == 'link' else 233}.{self.number}.{end}"

    def _device(self, link: str, end: str) -> str:
        return f"{self.name}-{link}-{end}"

    def create(self) -> None:
        """Create the namespace and its links. Raises NotPermitted."""
        _ip("netns", "add", self.name)
        _ip("-n", self.name, "link", "set", "lo", "up")
        for link, target in (("link", PLACE), ("store", STORE)):
            outer, inner = self._device(link, "a"), self._device(link, "b")
            _ip("link", "add", outer, "type", "veth", "peer", "name", inner, "netns", self.name)
            _ip("addr", "add", f"{self._address(link, 1)}/30", "dev", outer)
            _ip("link", "set", outer, "up")
            _ip("-n", self.name, "addr", "add", f"{self._address(link, 2)}/30", "dev", inner)
            _ip("-n", self.name, "link", "set", inner, "up")
            _ip("-n", self.name, "route", "add", f"{target}/32", "via", self._address(link, 1))

    def cut_store(self) -> None:
        """Drop all packets to and from the store."""
        _ip("link", "set", self._device("store", "a"), "down")

    def cut_answers(self) -> None:
        """Drop only the responses of the store: requests on an open connection still arrive."""
        _ip("route", "add", "blackhole", f"{self._address('store', 2)}/32")

    def heal(self) -> None:
        """Undo `cut_store` and `cut_answers`."""
        _ip("link", "set", self._device("store", "a"), "up")
        subprocess.run(["ip", "route", "del", "blackhole", f"{self._address('store', 2)}/32"], capture_output=True)

    def remove(self) -> None:
        """Remove the namespace with its links, also one that was created in part."""
        for words in (("route", "del", "blackhole", f"{self._address('store', 2)}/32"), ("netns", "del", self.name)):
            subprocess.run(["ip", *words], capture_output=True)


@contextmanager
def namespaces(count: int) -> Iterator[list[Namespace]]:
    """Yield namespaces, and remove them after the block. Raises NotPermitted."""
    created: list[Namespace] = []
    added: list[str] = []
    try:
        for address in (PLACE, STORE):
            _ip("addr", "add", f"{address}/32", "dev", "lo")
            added.append(address)
        for number in range(1, count + 1):
            namespace = Namespace(number)
            created.append(namespace)
            namespace.create()
        yield created
    finally:
        for namespace in created:
            namespace.remove()
        for address in added:
            _ip("addr", "del", f"{address}/32", "dev", "lo")


class Machine(Server):
    """A server that runs in a network namespace, and is reached by its link."""

    def __init__(self, namespace: Namespace, env: dict[str, str]) -> None:
        super().__init__(env=env, cold=True)
        self.namespace = namespace
        self.url = f"http://{namespace.address}:{self.port}"

    def _command(self, *arguments: str) -> list[str]:
        return ["ip", "netns", "exec", self.namespace.name, *super()._command(*arguments)]

    def start(self, *options: str, timeout: float = 60) -> "Machine":
        """Run `serve` in the namespace and return when it is ready."""
        self.launch("serve", "--listen", f"{self.namespace.address}:{self.port}", *options)
        self.wait_for_line(READY, timeout)
        return self
