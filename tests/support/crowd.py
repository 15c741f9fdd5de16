"""A mesh in memory as its members page shows it: who is in, who asks, and what is asked of the node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from meshnode.errors import MembershipError
from meshnode.model.issuing import COMPANY_ENDS
from meshnode.node.memberviews import MemberView, RecordView
from meshnode.node.pairing_views import CandidateView, InvitedView, InviteView, OpenInviteView
from meshnode.node.storage import wall_ms
from meshnode.node.views import PeerView
from support.dashboard import MeshInMemory, peer
from support.memory_node import SITE

DAY_MS = 86_400_000


class Crowd(MeshInMemory):
    """`desk`, the most senior authority, and those that a test names."""

    def __init__(self, peers: Sequence[PeerView] = (), *, own: dict[str, Any] | None = None, **values: Any) -> None:
        super().__init__(peers, **values)
        fields: dict[str, Any] = {"role": "authority", "seniority": 1, **(own or {})}
        desk = MemberView(
            site=SITE, short=SITE[:8], name="desk", own=True, by="the recovery key", by_site="00" * 16,
            since_ms=wall_ms() - 40 * DAY_MS, **fields,
        )  # fmt: skip
        self.members_now = [desk, *map(member, peers)]
        self.signed: list[tuple[str, ...]] = []
        self.company: tuple[str, ...] = ()
        self.ttls: list[tuple[int, bool]] = []

    async def members(self) -> list[MemberView]:
        return list(self.members_now)

    async def invite(self, ttl_ms: int = 900_000, *, confirm: bool = False) -> InviteView:
        self.ttls.append((ttl_ms, confirm))
        text = "meshnode-invite:" + f"{len(self.ttls)}abcdefghijklmnop" * 16
        named, until_ms = f"{len(self.ttls):02}" * 8, wall_ms() + ttl_ms
        self.open_invites.append(OpenInviteView(id=named, expires_ms=until_ms, confirm=confirm))
        return InviteView(invite=text, expires_ms=until_ms, id=named, confirm=confirm)

    async def invited(self, invite_id: str, *, seen: str = "open", timeout_s: float = 0.0) -> InvitedView:
        return self.becomes[-1] if self.becomes else InvitedView(state="open")

    async def decide(self, named: str, *, approve: bool) -> CandidateView:
        who = await super().decide(named, approve=approve)
        self.said["asking"] = []
        return who

    async def set_role(
        self, subject: str, role: str, *, recovery: str | None = None, passphrase: str | None = None
    ) -> RecordView:
        return msgspec.structs.replace(self._sign("role", subject, role), role=role)

    async def vouch(
        self, subject: str, *, name: str = "", recovery: str | None = None, passphrase: str | None = None
    ) -> RecordView:
        return self._sign("vouch", subject, name)

    async def retire(
        self,
        subject: str,
        *,
        at_ms: int | None = None,
        alone: bool = True,
        recovery: str | None = None,
        passphrase: str | None = None,
    ) -> RecordView:
        if self.company and alone:
            raise MembershipError(f"nothing was signed: with it {', '.join(self.company)} would be out; {COMPANY_ENDS}")
        view = self._sign("retirement", subject)
        self.members_now = [
            msgspec.structs.replace(each, retired=True, retired_by="desk", seniority=None)
            if each.site == subject
            else each
            for each in self.members_now
        ]
        return msgspec.structs.replace(view, cutoff=(1, 0), lost=self.company)

    def _sign(self, kind: str, subject: str, *more: str) -> RecordView:
        self.signed.append((kind, subject, *more))
        name = next((each.name for each in self.members_now if each.site == subject), subject)
        return RecordView(
            record="00" * 32, kind=kind, site=subject, short=subject[:8], name=name, by="desk", by_site=SITE,
            issued=(1, 0),
        )  # fmt: skip


def member(peer: PeerView) -> MemberView:
    """The same device as the other list has it."""
    return MemberView(
        site=peer.site, short=peer.short, name=peer.name, role=peer.role, by="desk", by_site=SITE,
        since_ms=wall_ms() - 9 * DAY_MS, retired=peer.retired, linked=peer.linked, last_seen_ms=peer.last_seen_ms,
        address=peer.address, software=peer.software,
    )  # fmt: skip


def crowd(members: int) -> Crowd:
    """Of all kinds: a second authority, a reader, one that was never seen, one that is away, one that is retired."""
    peers = [peer(number) for number in range(members)]
    now_ms = wall_ms()
    kinds: list[dict[str, Any]] = [
        {"role": "authority"}, {}, {"role": "reader", "linked": False, "last_seen_ms": None, "software": ""},
        {"linked": False, "last_seen_ms": now_ms - 5 * DAY_MS}, {"retired": True, "linked": False},
    ]  # fmt: skip
    peers = [msgspec.structs.replace(each, **kinds[at % 5 if at < 5 else 1]) for at, each in enumerate(peers)]
    node = Crowd(sorted(peers, key=lambda each: each.retired))
    node.members_now = [
        msgspec.structs.replace(each, seniority=2 if each.role == "authority" and not each.own else each.seniority,
                                retired_by="desk" if each.retired else "")
        for each in node.members_now
    ]  # fmt: skip
    return node


def candidate(name: str = "phone") -> CandidateView:
    """One that holds an invite and waits."""
    now_ms = wall_ms()
    return CandidateView(site="c4" * 16, short="c4" * 4, name=name, since_ms=now_ms, expires_ms=now_ms + 600_000)
