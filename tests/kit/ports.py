"""Ports of loopback addresses that nobody else uses: open ones, and ones whose connections are never answered."""

import contextlib
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def open_ports(address: str, *ports: int) -> Iterator[None]:
    """Listen on ports of a loopback address."""
    with contextlib.ExitStack() as stack:
        for port in ports:
            stack.enter_context(socket.create_server((address, port)))
        yield


@contextlib.contextmanager
def blackholed_port(address: str, port: int) -> Iterator[None]:
    """Make connections to a port time out, as a firewall that drops packets does: its queue of connections is full."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(socket.create_server((address, port), backlog=0))
        for _ in range(8):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex((address, port))
        yield
