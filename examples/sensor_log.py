"""A headless device logs readings: the readings stay on it, and a display elsewhere has what they come to.

`readings` is a table of class raw, which crosses the mesh only while `replicate_raw_ingress` is on at both ends; `days`
is shared. The sensor founds the mesh, so that the display, a reader, can look at everything and write nothing.
"""

import asyncio
import math
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from meshnode import Node, Table, TableClass, Where

FIRST_DAY = datetime(2026, 6, 1, tzinfo=UTC)
PER_DAY = 96  # a reading each quarter of an hour


@dataclass
class Reading:
    """One measurement; a device and a time make its key, so that two devices never write the same row."""

    device: str
    at: datetime
    celsius: float


@dataclass
class Day:
    """What the readings of one day come to."""

    device: str
    day: datetime
    readings: int
    mean: float
    highest: float


async def readings_of(node: Node) -> Table[Reading]:
    """The table, made where it is not there yet."""
    return await node.table("readings", Reading).create(key=["device", "at"], table_class=TableClass.RAW)


async def days_of(node: Node) -> Table[Day]:
    """The table of the class that tables have unless told otherwise: shared."""
    return await node.table("days", Day).create(key=["device", "day"])


def measured(day: datetime) -> list[Reading]:
    """A day's readings: cold at midnight, warm at noon, and each day half a degree warmer than the one before."""
    moments = [day + number * timedelta(days=1) / PER_DAY for number in range(PER_DAY)]
    base = 15 + (day - FIRST_DAY).days / 2
    return [
        Reading("roof", at, round(base - 5 * math.cos(2 * math.pi * number / PER_DAY), 2))
        for number, at in enumerate(moments)
    ]


async def log_day(node: Node, day: datetime) -> None:
    """A batch of readings and what it comes to, signed and on disk together, or neither."""
    readings, days = await readings_of(node), await days_of(node)
    batch = measured(day)
    values = [reading.celsius for reading in batch]
    async with node.transaction() as rows:
        rows.upsert(readings, *batch)
        rows.upsert(days, Day("roof", day, len(values), round(sum(values) / len(values), 2), max(values)))


async def drop_older(node: Node, day: datetime) -> tuple[int, int]:
    """Delete the readings from before `day`, then take out of the log what was written of them."""
    receipt = await (await readings_of(node)).delete_where(Where("at < ?", day))
    # The clock of the writes counts here, not `at`; what rows are made of now stays in the log all the same.
    report = await node.evict("readings", before_ms=receipt.hlc[0])
    return receipt.events, report.events


async def until_days(display: Node, number: int) -> list[Day]:
    """The aggregates at the display, as soon as there are so many."""
    return await display.until("SELECT * FROM days ORDER BY day", row=Day, when=lambda days: len(days) == number)


async def until_readings(display: Node, number: int) -> None:
    """Until the display has so many single readings."""
    await display.until("SELECT count(*) AS number FROM readings HAVING number = ?", [number])


async def count(node: Node) -> int:
    """How many readings a device has now."""
    return await (await readings_of(node)).count()


async def main(folder: str) -> None:
    """Three days in a moment."""
    first, second, third = (FIRST_DAY + timedelta(days=number) for number in range(3))
    async with Node.open(f"{folder}/sensor", name="sensor") as sensor:
        invite = await sensor.invite()
        async with Node.open(f"{folder}/display", name="display", invite=invite.invite) as display:
            await sensor.set_role("display", "reader")
            await readings_of(display)
            await days_of(display)

            await log_day(sensor, first)
            await log_day(sensor, second)
            for each in await until_days(display, 2):
                print(f"{each.day:%d %B}: {each.readings} readings, mean {each.mean} °C, highest {each.highest} °C")
            await sensor.wait_synced("display")
            print("readings at the sensor:", await count(sensor), "at the display:", await count(display))

            for node in (display, sensor):  # somebody wants a closer look: first who takes, then who gives
                await node.set_policy("replicate_raw_ingress", True)
            await until_readings(display, 2 * PER_DAY)
            await sensor.wait_synced("display")
            print("once both take part in raw tables, at the display:", await count(display))

            for node in (sensor, display):  # what it has it keeps, and no more comes
                await node.set_policy("replicate_raw_ingress", False)
            await log_day(sensor, third)
            await until_days(display, 3)
            await sensor.wait_synced("display")
            print("after a third day, at the sensor:", await count(sensor), "at the display:", await count(display))

            rows, events = await drop_older(sensor, third)
            print(f"{rows} rows and {events} events dropped, at the sensor:", await count(sensor))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(folder))
