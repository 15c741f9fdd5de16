"""All checks by name, in the order in which they are told, and running them: each apart, whatever the others meet."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

from meshnode.errors import DamagedError, MeshError, UsageError
from meshnode.model.logevent import LogEvent, log_event
from meshnode.model.wording import quoted
from meshnode.node.doctor import database, home, keys, mesh, network, rows, software
from meshnode.node.doctor.adopted import judge_adopted, look_at_adopted
from meshnode.node.doctor.findings import failed, warned
from meshnode.node.doctor.look_database import look_at_database, look_at_disk, look_at_wal
from meshnode.node.doctor.look_home import look_at_config, look_at_home
from meshnode.node.doctor.look_keys import look_at_identity, look_at_key, look_at_recovery
from meshnode.node.doctor.look_mesh import (
    look_at_clock,
    look_at_conflicts,
    look_at_links,
    look_at_membership,
    look_at_notices,
    look_at_streams,
    look_at_tables,
    look_at_versions,
)
from meshnode.node.doctor.look_network import look_at_interfaces, look_at_mdns, look_at_node, look_at_port
from meshnode.node.doctor.patient import AskedOnce, NotLookedAtError, Patient
from meshnode.node.doctorviews import FAIL, DoctorView, FindingView, worst
from meshnode.node.overview import SOFTWARE

F = TypeVar("F")
LOG = logging.getLogger("meshnode.doctor")
Tell = Callable[[str], None]  # told the name of each check before it looks


@dataclass(frozen=True, slots=True)
class Check(Generic[F]):
    """One check: how its facts are gathered, and what they mean. `alone` says that it needs no node in the home."""

    name: str
    gather: Callable[[Patient], Awaitable[F]]
    judge: Callable[[F], list[FindingView]]
    alone: bool = False


CHECKS: Final[tuple[Check[Any], ...]] = (
    Check("home", look_at_home, home.judge_home, alone=True),
    Check("config", look_at_config, home.judge_config),
    Check("key", look_at_key, keys.judge_key),
    Check("recovery", look_at_recovery, keys.judge_recovery),
    Check("identity", look_at_identity, keys.judge_identity),
    Check("database", look_at_database, database.judge_database),
    Check("disk", look_at_disk, database.judge_disk),
    Check("wal", look_at_wal, database.judge_wal),
    Check("versions", look_at_versions, software.judge_versions, alone=True),
    Check("node", look_at_node, network.judge_node),
    Check("interfaces", look_at_interfaces, network.judge_interfaces, alone=True),
    Check("port", look_at_port, network.judge_port),
    Check("mdns", look_at_mdns, network.judge_mdns, alone=True),
    Check("clock", look_at_clock, mesh.judge_clock),
    Check("links", look_at_links, mesh.judge_links),
    Check("membership", look_at_membership, mesh.judge_membership),
    Check("schema", look_at_tables, rows.judge_schema),
    Check("adopted", look_at_adopted, judge_adopted),
    Check("held", look_at_tables, rows.judge_held),
    Check("withheld", look_at_tables, rows.judge_withheld),
    Check("conflicts", look_at_conflicts, rows.judge_conflicts),
    Check("streams", look_at_streams, rows.judge_streams),
    Check("notices", look_at_notices, rows.judge_notices),
)


def chosen(names: Sequence[str]) -> list[Check[Any]]:
    """The checks of these names, all of them where none is named; UsageError for a name that is none."""
    known = [check.name for check in CHECKS]
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f", did you mean {near[0]!r}?" if near else f": there are {', '.join(known)}"
            raise UsageError(f"there is no check {quoted(name)}{hint}")
    return [check for check in CHECKS if not names or check.name in names]


async def diagnose(patient: Patient, names: Sequence[str] = (), tell: Tell = lambda _name: None) -> DoctorView:
    """Run the checks of these names, or all. Nothing that one meets is raised, or keeps another from running."""
    wanted = chosen(names)
    if patient.node is not None:
        patient = replace(patient, node=AskedOnce(patient.node))
    if not patient.founded:  # there is nothing else to look at; the check `home` says how to begin
        wanted = [check for check in CHECKS if check.alone and (check in wanted or check.name == "home")]
    findings: list[FindingView] = []
    damage: list[DamagedError] = []
    for check in wanted:
        tell(check.name)
        findings += await _run(check, patient, damage)
    if damage:
        findings = _with_damage(findings, damage[0])
    return DoctorView(
        home=str(patient.home.path),
        running=patient.running,
        software=SOFTWARE,
        verdict=worst(findings),
        findings=tuple(findings),
    )


def _with_damage(findings: list[FindingView], met: DamagedError) -> list[FindingView]:
    """`quick_check` does not see all: where another check could not read a page, the file is not whole either."""
    if any(each.check == "database" and each.verdict == FAIL for each in findings):
        return findings
    at = next((at for at, each in enumerate(findings) if each.check == "database"), 0)
    return [*findings[:at], database.judge_damage(str(met)), *(e for e in findings[at:] if e.check != "database")]


async def _run(check: Check[Any], patient: Patient, damage: list[DamagedError]) -> list[FindingView]:
    """`damage` takes what a check met of it, which is for the check `database` to tell."""
    try:
        return check.judge(await check.gather(patient))
    except DamagedError as error:
        damage.append(error)
        found = "not looked at, since the database cannot be read where this looks"
        return [warned(check.name, found, "the check `database` says what to do; then run this again")]
    except NotLookedAtError as error:
        return [warned(check.name, f"not looked at, since {error}", "see to that first, and run this again")]
    except (MeshError, OSError) as error:
        return [failed(check.name, f"this could not be looked at: {error}", "see to that, and run this again")]
    except Exception as error:
        log_event(LOG, logging.DEBUG, LogEvent.FAULT, trace=True, work=f"the check {check.name}")
        found = f"this check failed itself: {type(error).__name__}: {error}"
        return [failed(check.name, found, "this is a fault of meshnode: the other checks are not touched by it")]
