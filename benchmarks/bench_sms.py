"""Measures SMS: `python -m benchmarks.bench_sms [--contacts 20000] [--connections 16]`; not a test, run by hand.

A campaign goes to everybody through the real service into the provider of the kit, a process of its own that takes some
thousands a second; the same again with a provider that answers after 20 ms, as one far away does, with what the rate
would be if each request only waited for its answer. Last, the same requests are made by httpcore alone.
"""

import argparse
import asyncio
import base64
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpcore

from benchmarks.bench_sending import UNLIMITED
from tests.kit import sms_recipients
from tests.kit.fake_sms import NUMBER, SID, TOKEN, FakeSms
from tests.kit.server import Server
from tests.kit.timeouts import cpu_seconds

HINT = {"sms_opt_out_hint": "Reply STOP to opt out"}


def measured(name: str, server: Server, sms: FakeSms, people: int, options: Any) -> None:
    """Send one campaign, and print its rate and its cost."""
    api = server.client(validate=False, keep_alive=True)
    path = sms_recipients.create_campaign(
        api, people, "Hello {{ first_name }}, {{ contact.data.city }}: https://bakery.example/bread"
    )
    known, cpu, begin = len(sms.accepted), cpu_seconds(server.pid), time.perf_counter()
    api.post(f"{path}/send").expect(200)
    frozen = time.perf_counter() - begin
    while api.get(path).expect(200)["status"] != "completed":
        time.sleep(0.2)
    whole, spent = time.perf_counter() - begin, cpu_seconds(server.pid) - cpu
    times = sorted(sms_.at for sms_ in sms.accepted[known:])
    if len(times) != options.contacts:
        raise AssertionError(len(times))
    seconds = [sum(1 for at in times if n <= at - times[0] < n + 1) for n in range(int(times[-1] - times[0]))]
    print(f"{name}: {len(times) / (times[-1] - times[0]):,.0f}/s at the provider (median second "
          f"{statistics.median(seconds or [0]):,.0f}), {whole:.1f} s in all of which {frozen:.1f} to freeze, "
          f"{spent / len(times) * 1000:.2f} CPU-s per 1,000")  # fmt: skip


async def measure_httpcore(sms: FakeSms, options: Any) -> None:
    """Make as many requests as a campaign does, over as many connections, by httpcore's own pool; print the rate."""
    form = urlencode({"To": "+15551230001", "From": NUMBER, "Body": "Hello Ann, Lisbon: https://bakery.example/bread"})
    login = base64.b64encode(f"{SID}:{TOKEN}".encode()).decode()
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Authorization": f"Basic {login}"}
    url, left = f"{sms.url}/2010-04-01/Accounts/{SID}/Messages.json", iter(range(options.contacts))
    async with httpcore.AsyncConnectionPool(max_connections=options.connections) as pool:

        async def post_all() -> None:
            for _ in left:
                response = await pool.request("POST", url, headers=headers, content=form.encode())
                if response.status != 201:
                    raise AssertionError(response.status, response.content)

        cpu, begin = time.process_time(), time.perf_counter()
        await asyncio.gather(*(post_all() for _ in range(options.connections)))
        seconds, spent = time.perf_counter() - begin, time.process_time() - cpu
    print(f"httpcore alone: {options.contacts / seconds:,.0f}/s, {spent / options.contacts * 1000:.2f} CPU-s per 1,000")


def main() -> None:
    """Run the measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--contacts", type=int, default=20_000)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, FakeSms(Path(directory)) as sms:
        env = sms.env | UNLIMITED | {"CAMPANERO_SMS__CONNECTIONS": str(options.connections)}
        with Server(env=env).set_up() as server:
            server.set_postal_address()
            api = server.client(validate=False)
            api.patch("/account", HINT).expect(200)
            people = sms_recipients.create_list(api, options.contacts)
            print(f"load {os.getloadavg()[0]:.1f}")
            for number in range(options.rounds):
                asyncio.run(measure_httpcore(sms, options))
                measured(f"near, round {number + 1}", server, sms, people, options)
            sms.delay(0.02)
            measured(f"20 ms away (most {options.connections / 0.02:,.0f}/s)", server, sms, people, options)


if __name__ == "__main__":
    main()
