"""How fast one bulk stream is through our endpoint and through bare aioquic. A measurement, not a test:

    python tests/bench/goodput.py [--mib 16] [--runs 5] [--json]

Sender and receiver are two processes on loopback. Bare aioquic is its own `connect` and `serve` at their default
settings, which is what somebody has who builds on it without more; ours is two `Endpoint`s at theirs. Runs of the two
alternate, so that a machine that is busy for a while is so for both. Goodput is bytes of the stream by the seconds from
the first write until the receiver said, in one byte back, that it has all of them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from aioquic.asyncio import connect, serve
from aioquic.quic.configuration import QuicConfiguration
from support.quic import ALICE, CAROL, bare_configuration, identity

from meshnode.net.endpoint import Admission, Endpoint, Link

MIB = 1024 * 1024
_CHUNK = 64 * 1024
_AHEAD = 1 * MIB  # unacknowledged bytes up to which ours goes on writing, as a node bounds what is in flight
_WARM_UP = 1 * MIB  # through the stream before the clock starts: handshake, size of datagrams, congestion window


@dataclass(frozen=True, slots=True)
class Goodput:
    """One run: megabytes a second, and seconds of processor per gigabyte at either end."""

    mb_per_s: float
    sender_cpu_s_per_gb: float
    receiver_cpu_s_per_gb: float


def _cpu_s() -> float:
    times = os.times()
    return times.user + times.system


async def _serve_bare(_: int) -> None:
    """aioquic's own server; after every count of bytes that a stream announces, one byte and the processor time."""

    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):  # the client has done
            while True:
                left = int.from_bytes(await reader.readexactly(8), "big")
                while left:
                    left -= len(await reader.read(min(left, MIB)))
                writer.write(int(_cpu_s() * 1e6).to_bytes(8, "big"))

    tasks: set[asyncio.Task[None]] = set()

    def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.ensure_future(count(reader, writer)))

    server = await serve(
        "127.0.0.1", 0, configuration=bare_configuration("bob", is_client=False), stream_handler=handle
    )
    transport = server._transport
    assert transport is not None
    print(transport.get_extra_info("sockname")[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


async def _send_bare(port: int, size: int) -> Goodput:
    configuration: QuicConfiguration = bare_configuration(None)
    async with connect("127.0.0.1", port, configuration=configuration) as client:
        reader, writer = await client.create_stream()

        async def pass_through(size: int) -> float:
            writer.write(size.to_bytes(8, "big"))
            writer.write(bytes(size))  # it has no back-pressure: `drain` returns at once
            return int.from_bytes(await reader.readexactly(8), "big") / 1e6

        return await _timed(pass_through, size)


async def _serve_ours(_: int) -> None:
    """One endpoint of ours that does the same."""

    def on_link(link: Link) -> None:
        left = 0
        head = bytearray()

        def events(data: bytes) -> None:
            nonlocal left
            if not left:
                head.extend(data)
                left, data = int.from_bytes(head[:8], "big"), bytes(head[8:])
                head.clear()
            left -= len(data)
            if not left:
                link.send_events(int(_cpu_s() * 1e6).to_bytes(8, "big"))

        link.on_events = events

    endpoint = await _endpoint(CAROL, on_link)
    print(endpoint.port, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await endpoint.close()


async def _endpoint(key: Any, on_link: Callable[[Link], None]) -> Endpoint:
    return await Endpoint.create(
        "127.0.0.1",
        0,
        identity=identity(key),
        admit=lambda site, public_key, alpn: Admission.MEMBER,
        on_link=on_link,
        on_notice=lambda kind, site, text: None,
    )


async def _send_ours(port: int, size: int) -> Goodput:
    answers: asyncio.Queue[bytes] = asyncio.Queue()

    def on_link(link: Link) -> None:
        link.on_events = answers.put_nowait

    endpoint = await _endpoint(ALICE, on_link)
    try:
        link = await endpoint.dial("127.0.0.1", port)

        async def pass_through(size: int) -> float:
            link.send_events(size.to_bytes(8, "big"))
            chunk = bytes(_CHUNK)
            for start in range(0, size, _CHUNK):
                link.send_events(chunk[: size - start])
                await link.drained(_AHEAD)
            return int.from_bytes(await answers.get(), "big") / 1e6

        return await _timed(pass_through, size)
    finally:
        await endpoint.close()


async def _timed(pass_through: Callable[[int], Coroutine[Any, Any, float]], size: int) -> Goodput:
    theirs = await pass_through(_WARM_UP)
    mine, begun = _cpu_s(), time.perf_counter()
    received = await pass_through(size)
    seconds = time.perf_counter() - begun
    gigabytes = size / 1e9
    return Goodput(size / 1e6 / seconds, (_cpu_s() - mine) / gigabytes, (received - theirs) / gigabytes)


_SERVE = {"bare": _serve_bare, "ours": _serve_ours}
_SEND = {"bare": _send_bare, "ours": _send_ours}


async def _run(role: str, what: str, *words: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, __file__, role, what, *words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )


async def goodput(what: str, size: int) -> Goodput:
    """One run of `size` bytes through `bare` or `ours`, in two fresh processes."""
    server = await _run("serve", what)
    assert server.stdout is not None
    port = (await server.stdout.readline()).decode().strip()
    client = await _run("send", what, port, str(size))
    told, _ = await client.communicate()
    await server.communicate(b"")
    return Goodput(**json.loads(told))


async def compare(size: int, runs: int) -> dict[str, Goodput]:
    """The medians of both, `runs` of each in turn."""
    seen: dict[str, list[Goodput]] = {"bare": [], "ours": []}
    for _ in range(runs):
        for what, of_one in seen.items():
            of_one.append(await goodput(what, size))
    return {what: median(of_one) for what, of_one in seen.items()}


def median(runs: list[Goodput]) -> Goodput:
    """Figure by figure."""
    columns = zip(*(asdict(run).values() for run in runs), strict=True)
    return Goodput(*(statistics.median(column) for column in columns))


def main() -> None:
    """Measure and print; `serve` and `send` are the two processes of one run."""
    if sys.argv[1:2] == ["serve"]:
        asyncio.run(_SERVE[sys.argv[2]](0))
        return
    if sys.argv[1:2] == ["send"]:
        print(json.dumps(asdict(asyncio.run(_SEND[sys.argv[2]](int(sys.argv[3]), int(sys.argv[4]))))))
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=int, default=16)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = asyncio.run(compare(options.mib * MIB, options.runs))
    ratio = result["ours"].mb_per_s / result["bare"].mb_per_s
    if options.json:
        print(json.dumps({**{what: asdict(figures) for what, figures in result.items()}, "ratio": ratio}))
        return
    for what, figures in result.items():
        print(f"{what:5}", "   ".join(f"{name} {value:,.1f}" for name, value in asdict(figures).items()))
    print(f"ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
