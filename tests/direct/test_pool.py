"""Conversations that wait for the next message, with a real server: no more of a group than allowed, none left over."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from appliance.sending.delivery import smtp_connect
from appliance.sending.delivery.smtp_client import Server, SmtpClient
from appliance.sending.delivery.smtp_connect import MxTarget
from appliance.sending.workers.mx_connections import ConnectionPool
from tests.kit.smtp import SmtpServer


def way(name: str, group: str = "google") -> MxTarget:
    """Return the way to a server of a group."""
    return MxTarget("people.example", ((10, name),), group)


def with_pool(
    act: Callable[[ConnectionPool, Callable[[], Coroutine[Any, Any, SmtpClient]]], Coroutine[Any, Any, None]],
) -> None:
    """Run an act with a pool and something that opens conversations; at its end nothing is open."""
    with SmtpServer() as smtp:

        async def run() -> None:
            pool = ConnectionPool()
            await act(
                pool, lambda: smtp_connect.open_connection(Server("127.0.0.1", smtp.port, "none", helo="x.example"))
            )
            await pool.close()
            assert pool.connections == 0 and not pool._open

        asyncio.run(run())
        smtp.wait_until(lambda: smtp.open_now == 0)


def test_a_conversation_is_taken_up_again() -> None:
    """For the same servers, not for others, and not once it has ended."""

    async def act(pool: ConnectionPool, connect: Callable[[], Coroutine[Any, Any, SmtpClient]]) -> None:
        await pool.reserve(way("a"), 4)
        first = await connect()
        pool.put(way("a"), first)
        assert pool.take(way("b")) is None
        assert pool.take(way("a")) is first
        first.abort()
        pool.put(way("a"), first)
        assert pool.take(way("a")) is None

    with_pool(act)


def test_another_server_of_the_group_takes_the_place_of_an_idle_one() -> None:
    """Two at most: the third waits until an idle one has said goodbye; another group waits for nobody."""

    async def act(pool: ConnectionPool, connect: Callable[[], Coroutine[Any, Any, SmtpClient]]) -> None:
        made = []
        for name in ("a", "b"):
            await pool.reserve(way(name), 2)
            made.append(await connect())
            pool.put(way(name), made[-1])
        await pool.reserve(way("c"), 2)
        assert pool.connections == 1 and not made[0].is_open() and made[1].is_open()
        await pool.reserve(way("d", "other"), 1)
        assert pool.connections == 1
        pool.release(way("c"))
        pool.release(way("d", "other"))
        pool.close_group("google")
        assert pool.connections == 0

    with_pool(act)


def test_proven_conversations_are_apart() -> None:
    """Who demands a proof does not get a conversation that was opened without, nor the other way round."""

    async def act(pool: ConnectionPool, connect: Callable[[], Coroutine[Any, Any, SmtpClient]]) -> None:
        await pool.reserve(way("a"), 4)
        pool.put(way("a"), await connect())
        assert pool.take(way("a")._replace(requires_verified_tls=True)) is None

    with_pool(act)
