"""Apps that are attached to the node: each is told of its own schema, and writes there alone."""

from __future__ import annotations

from typing import Final

from meshnode.control import requests as asked
from meshnode.control.operation import Call, Stream
from meshnode.errors import (
    ClockExhaustedError,
    IdentityError,
    MembershipError,
    NotFoundError,
    RegistrationError,
)
from meshnode.node.projectionviews import ProjectionPage, WrittenView

PROJECT: Final = Stream(
    "project",
    asked.Project,
    ProjectionPage,
    lambda node, a: node.project(a.schema, epoch=a.epoch, since=a.since),
    reads=True,
)
WRITE_SCHEMA: Final = Call(
    "write-schema",
    asked.WriteSchema,
    WrittenView,
    lambda node, a: node.write_schema(a.schema, a.writes),
    raises=(NotFoundError, RegistrationError, MembershipError, IdentityError, ClockExhaustedError),
)
