"""The turns of an account to render: one function at a time, sends first, and only a few previews that wait (T02)."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from appliance.core.errors import RateLimitExceeded
from appliance.storage import transactions
from tests.domain.home import Home


@pytest.fixture(autouse=True)
def pool(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A renderer pool as the service has it, which is the scanner pool too."""
    with ThreadPoolExecutor(transactions.RENDER_THREADS) as threads:
        monkeypatch.setattr(transactions, "_renderers", threads)
        monkeypatch.setattr(transactions, "_scanners", threads)
        yield


class Work:
    """Functions that note when they run; each waits for `finish`."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.finish = threading.Event()
        self.running = self.most = 0

    def run(self, _: int, name: str) -> str:
        """Note the name, and wait."""
        self.running += 1
        self.most = max(self.most, self.running)
        self.ran.append(name)
        self.finish.wait(10)
        self.running -= 1
        return name


async def _started(work: Work, name: str) -> None:
    async with asyncio.timeout(5):
        while name not in work.ran:
            await asyncio.sleep(0.005)


def _queue(work: Work, run: Callable[..., Awaitable[str]], name: str, account_id: int = 1) -> "asyncio.Task[str]":
    return asyncio.ensure_future(run(work.run, account_id, name))  # type: ignore[arg-type]  # a coroutine in fact


def test_sends_come_before_edits_and_previews() -> None:
    """What is to be sent waits only for what runs already; other accounts do not wait at all."""

    async def main() -> None:
        work = Work()
        tasks = [_queue(work, transactions.render_preview, "first")]
        await _started(work, "first")
        tasks += [_queue(work, transactions.render_preview, f"preview {number}") for number in range(2)]
        tasks += [_queue(work, transactions.render, "edit"), _queue(work, transactions.render_send, "send")]
        tasks.append(_queue(work, transactions.render_preview, "other account", 2))
        await _started(work, "other account")
        assert work.ran == ["first", "other account"]
        work.finish.set()
        await asyncio.gather(*tasks)
        assert [name for name in work.ran if name != "other account"] == [
            "first", "send", "edit", "preview 0", "preview 1",
        ]  # fmt: skip
        assert work.most == 2

    asyncio.run(main())


def test_only_a_few_previews_wait() -> None:
    """One more is refused, with the time after which to try again; edits and sends are not refused."""

    async def main() -> None:
        work = Work()
        tasks = [
            _queue(work, transactions.render_preview, str(n)) for n in range(1 + transactions.MAX_WAITING_PREVIEWS)
        ]
        await asyncio.sleep(0)
        with pytest.raises(RateLimitExceeded) as refused:
            await transactions.render_preview(work.run, 1, "too many")
        assert refused.value.retry_after > 0
        tasks += [_queue(work, run, "more") for run in (transactions.render, transactions.render_send) * 4]
        work.finish.set()
        assert len(await asyncio.gather(*tasks)) == len(tasks)
        assert await transactions.render_preview(work.run, 1, "later") == "later"

    asyncio.run(main())


def test_who_leaves_takes_no_second_turn() -> None:
    """The turn of a client that disconnects ends with its work, and a client that leaves while waiting has none."""

    async def main() -> None:
        work = Work()
        left = _queue(work, transactions.render_preview, "left")
        await _started(work, "left")
        waiting = _queue(work, transactions.render_send, "waiting")
        after = _queue(work, transactions.render, "after")
        await asyncio.sleep(0.01)
        left.cancel()
        waiting.cancel()
        await asyncio.sleep(0.05)
        assert work.ran == ["left"]
        work.finish.set()
        assert await asyncio.wait_for(after, 5) == "after"
        assert work.ran == ["left", "after"] and work.most == 1

    asyncio.run(main())


def test_a_turn_that_was_given_to_who_leaves_is_passed_on() -> None:
    """A client that leaves just when it gets the turn does not keep it, and an error ends the turn too."""

    async def main() -> None:
        work = Work()
        work.finish.set()

        def fail(_: int) -> None:
            raise ValueError("x")

        with pytest.raises(ValueError):
            await transactions.render(fail, 1)
        queue = transactions._AccountQueue()
        await queue.take_turn(0)
        leaver = asyncio.ensure_future(queue.take_turn(0))
        stayer = asyncio.ensure_future(queue.take_turn(2))
        await asyncio.sleep(0)
        queue.pass_turn()
        leaver.cancel()
        await asyncio.wait_for(stayer, 5)
        assert leaver.cancelled()

    asyncio.run(main())


def test_an_account_scans_once_at_a_time() -> None:
    """Scans of another account do not wait; past a number of waiting scans more are refused."""

    async def main() -> None:
        work = Work()
        tasks = [_queue(work, transactions.scan, str(n)) for n in range(1 + transactions.MAX_WAITING_SCANS)]
        await _started(work, "0")
        tasks.append(_queue(work, transactions.scan, "other account", 2))
        await _started(work, "other account")
        assert work.ran == ["0", "other account"]
        with pytest.raises(RateLimitExceeded) as refused:
            await transactions.scan(work.run, 1, "too many")
        assert refused.value.retry_after > 0
        tasks.append(asyncio.ensure_future(transactions.scan_chunk(1, work.run, 1, "a download goes on")))
        work.finish.set()
        assert len(await asyncio.gather(*tasks)) == len(tasks)
        assert work.most == 2

    asyncio.run(main())


def test_scans_do_not_wait_for_the_end_of_downloads() -> None:
    """While two downloads go on, a scan of the account gets its turn after at most two of their parts."""

    async def main() -> None:
        parts: list[str] = []
        has_ended = False

        async def download(name: str) -> None:
            while not has_ended:
                await transactions.scan_chunk(1, parts.append, name)

        downloads = [asyncio.ensure_future(download(name)) for name in "ab"]
        while len(parts) < 4:
            await asyncio.sleep(0)
        before = len(parts)
        try:
            async with asyncio.timeout(5):
                await transactions.scan_for(1, parts.append, "scan")
        finally:
            has_ended = True
        await asyncio.gather(*downloads)
        assert parts.index("scan") <= before + 2

    asyncio.run(main())


def test_public_pages_do_not_wait_for_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    """While all readers are busy, a page of a recipient is read at once."""

    async def main() -> None:
        work = Work()
        busy = [asyncio.ensure_future(transactions.fetch(work.run, 1, str(n))) for n in range(2)]
        await _started(work, "1")
        assert await asyncio.wait_for(transactions.fetch_public(lambda: "page"), 5) == "page"
        work.finish.set()
        await asyncio.gather(*busy)

    with ThreadPoolExecutor(2) as readers, ThreadPoolExecutor(2) as public_readers:
        monkeypatch.setattr(transactions, "_readers", readers)
        monkeypatch.setattr(transactions, "_public_readers", public_readers)
        asyncio.run(main())
