"""The pool of idle SMTP connections, with a real server: limits of a group, reuse, and clean-up."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from appliance.sending.delivery import smtp_connect
from appliance.sending.delivery.smtp_client import Server, SmtpClient
from appliance.sending.delivery.smtp_connect import MxTarget
from appliance.sending.workers.mx_connections import ConnectionPool
from tests.kit.smtp import SmtpServer


def target(name: str, group: str = "google") -> MxTarget:
    """Return a target with one server of a recipient group."""
    return MxTarget("people.example", ((10, name),), group)


def with_pool(
    scenario: Callable[[ConnectionPool, Callable[[], Coroutine[Any, Any, SmtpClient]]], Coroutine[Any, Any, None]],
) -> None:
    """Run a scenario with a pool and a function that opens connections; no connection may be open at the end."""
    with SmtpServer() as smtp:

        async def run() -> None:
            pool = ConnectionPool()
            await scenario(
                pool, lambda: smtp_connect.open_connection(Server("127.0.0.1", smtp.port, "none", helo="x.example"))
            )
            await pool.close()
            assert pool.idle_count == 0 and not pool._open

        asyncio.run(run())
        smtp.wait_until(lambda: smtp.open_now == 0)


def test_a_connection_is_reused() -> None:
    """An open connection is reused for the same servers only."""

    async def act(pool: ConnectionPool, connect: Callable[[], Coroutine[Any, Any, SmtpClient]]) -> None:
        await pool.reserve(target("a"), 4)
        first = await connect()
        pool.put(target("a"), first)
        assert pool.take(target("b")) is None
        assert pool.take(target("a")) is first
        first.abort()
        pool.put(target("a"), first)
        assert pool.take(target("a")) is None

    with_pool(act)


def test_an_idle_connection_makes_room_in_its_group() -> None:
    """At the limit of a group an idle connection to another of its servers is closed; other groups are not affected."""

    async def act(pool: ConnectionPool, connect: Callable[[], Coroutine[Any, Any, SmtpClient]]) -> None:
        clients = []
        for name in ("a", "b"):
            await pool.reserve(target(name), 2)
            clients.append(await connect())
            pool.put(target(name), clients[-1])
        await pool.reserve(target("c"), 2)
        assert pool.idle_count == 1 and not clients[0].is_open() and clients[1].is_open()
        await pool.reserve(target("d", "other"), 1)
        assert pool.idle_count == 1
        pool.release(target("c"))
        pool.release(target("d", "other"))
        pool.close_group("google")
        assert pool.idle_count == 0

    with_pool(act)


def test_verified_connections_are_separate() -> None:
    """A target that requires verified TLS does not get a connection that was opened without."""

    async def act(pool: ConnectionPool, connect: Callable[[], Coroutine[Any, Any, SmtpClient]]) -> None:
        await pool.reserve(target("a"), 4)
        pool.put(target("a"), await connect())
        assert pool.take(target("a")._replace(requires_verified_tls=True)) is None

    with_pool(act)
