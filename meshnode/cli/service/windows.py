"""The task of the Windows Task Scheduler, at logon. What it writes is tested; that Windows takes it is not."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from meshnode.cli.service.description import Service, described, refuse_unwritable
from meshnode.cli.service.manager import Run, State, Step
from meshnode.errors import UsageError

_NAMESPACE = "http://schemas.microsoft.com/windows/2004/02/mit/task"
_EXPANDED = re.compile(r"%[^%]+%|\$\(")  # by the scheduler, before the program sees them, and there is no escape
_TASK = """\
<?xml version="1.0" encoding="UTF-16"?>
<Task version="1.2" xmlns="{namespace}">
  <RegistrationInfo>
    <Description>{about}</Description>
  </RegistrationInfo>
  <Triggers>
    <LogonTrigger>
      <Enabled>true</Enabled>
{person}    </LogonTrigger>
  </Triggers>
  <Principals>
    <Principal id="Author">
{person}      <LogonType>InteractiveToken</LogonType>
      <RunLevel>LeastPrivilege</RunLevel>
    </Principal>
  </Principals>
  <Settings>
    <MultipleInstancesPolicy>IgnoreNew</MultipleInstancesPolicy>
    <DisallowStartIfOnBatteries>false</DisallowStartIfOnBatteries>
    <StopIfGoingOnBatteries>false</StopIfGoingOnBatteries>
    <RestartOnFailure>
      <Interval>PT1M</Interval>
      <Count>10</Count>
    </RestartOnFailure>
    <ExecutionTimeLimit>PT0S</ExecutionTimeLimit>
  </Settings>
  <Actions Context="Author">
    <Exec>
      <Command>{command}</Command>
      <Arguments>{arguments}</Arguments>
    </Exec>
  </Actions>
</Task>
"""


class Windows:
    """`schtasks`; the file stays in the node's home, so that it can be compared with what is wanted."""

    name = "windows"
    untested = "untested on Windows: the file is what the Task Scheduler's schema asks for, and nobody has seen it run"

    def __init__(self, environment: Mapping[str, str]) -> None:
        domain, person = environment.get("USERDOMAIN", ""), environment.get("USERNAME", "")
        self._person = f"{domain}\\{person}" if domain else person

    def label(self, service: Service) -> str:
        """In a folder of its own."""
        return f"\\meshnode\\node-{service.instance}" if service.instance else "\\meshnode\\node"

    def path(self, service: Service) -> Path:
        """Beside the settings."""
        return Path(service.home) / "service.xml"

    def text(self, service: Service) -> bytes:
        """The task, in UTF-16 with its mark, as `schtasks` reads it."""
        refuse_unwritable(service)
        if service.passphrase_file is not None:
            raise UsageError(
                "the Task Scheduler gives a program no file to read: use `meshnode identity protect --keyring`"
            )
        if service.environment:
            name = service.environment[0][0]
            raise UsageError(f"the Task Scheduler sets no variables: install meshnode, and unset {name}")
        program, *rest = service.command
        for word in service.command:
            if _EXPANDED.search(word):
                raise UsageError(f"the Task Scheduler would expand what stands in {word!r}: choose another folder")
        text = _TASK.format(
            namespace=_NAMESPACE,
            about=escape(f"meshnode (node in {service.home})"),
            person=f"      <UserId>{escape(self._person)}</UserId>\n"
            if self._person
            else "",  # else: whoever registers it
            command=escape(program),
            arguments=escape(subprocess.list2cmdline(rest)),
        )
        return text.replace("\n", "\r\n").encode("utf-16")

    def read(self, text: bytes, *, usual: bool) -> Service | None:
        """The reverse; a file of another hand may be anything, and is never more than compared."""
        try:
            task = ElementTree.fromstring(text.decode("utf-16").partition("?>")[2])  # noqa: S314 - the person's own file
        except (ElementTree.ParseError, UnicodeError):
            return None
        found = task.find(f".//{{{_NAMESPACE}}}Exec")
        if found is None:
            return None
        program = found.findtext(f"{{{_NAMESPACE}}}Command", "")
        rest = split_words(found.findtext(f"{{{_NAMESPACE}}}Arguments", ""))
        return described([program, *rest], usual=usual, passphrase_file=None, environment=())

    def start(self, service: Service, *, now: bool) -> Sequence[Step]:
        """`/F` puts it in the place of an earlier one; one that runs ends first, or the new one would be ignored."""
        label = self.label(service)
        create = Step(("schtasks", "/Create", "/TN", label, "/XML", str(self.path(service)), "/F"))
        if not now:
            return [create]
        end = Step(("schtasks", "/End", "/TN", label), optional=True)
        return [create, end, Step(("schtasks", "/Run", "/TN", label))]

    def stop(self, service: Service) -> Sequence[Step]:
        """End it, then take it out."""
        label = self.label(service)
        end = Step(("schtasks", "/End", "/TN", label), optional=True)
        return [end, Step(("schtasks", "/Delete", "/TN", label, "/F"))]

    def files(self, service: Service) -> Sequence[Path]:
        """The one."""
        return [self.path(service)]

    def gone(self, service: Service) -> Sequence[Step]:
        """Nothing."""
        return []

    def state(self, service: Service, run: Run) -> State:
        """Whether there is such a task; whether it runs is said in the language of the system, so it is not read."""
        ran = run(("schtasks", "/Query", "/TN", self.label(service)))
        return State(ran.code == 0, None, ran.said)

    def advice(self, service: Service) -> str:
        """What shows of it."""
        return "It runs while you are logged in, in a console window of its own."


def split_words(line: str) -> list[str]:
    """The words of a command line as a C program of Windows gets them: backslashes count only before a quote."""
    words: list[str] = []
    word: str | None = None
    quoted = False
    for slashes, character in re.findall(r"(\\*)([^\\]|$)", line, re.DOTALL):
        if character == '"':
            word = (word or "") + slashes[: len(slashes) // 2]
            if len(slashes) % 2:
                word += '"'
            else:
                quoted = not quoted
            continue
        if slashes:
            word = (word or "") + slashes
        if character and (quoted or character not in " \t"):
            word = (word or "") + character
        elif word is not None:
            words.append(word)
            word = None
    return words
