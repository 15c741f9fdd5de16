"""Records that this node issues: founding, vouches, roles, retirements (profile §9)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from meshnode.codec.digest import blake3_256
from meshnode.engine.context import Context
from meshnode.engine.membership import add_records
from meshnode.errors import UsageError
from meshnode.limits import LABEL_BYTES
from meshnode.model.hlc import Hlc, tick
from meshnode.model.record import AUTHORITY, Body, Retirement, Role, Vouch, seal_record
from meshnode.model.site import SiteKey, site_id_of, site_text
from meshnode.store import records as rows
from meshnode.store.database import Tx


def found_mesh(context: Context, tx: Tx, recovery: SiteKey, name: str) -> None:
    """The recovery key admits this device as the first one and makes it an authority; then it is not needed here."""
    device = own_key(context)
    issue_vouch(context, tx, device.public_key, name, signer=recovery)
    issue_role(context, tx, device.site, AUTHORITY, signer=recovery)


def issue_vouch(context: Context, tx: Tx, public_key: bytes, name: str, *, signer: SiteKey | None = None) -> bytes:
    """Admit the site of `public_key`; returns the record. UsageError where it would not count."""
    if len(name.encode()) > LABEL_BYTES:
        raise UsageError(f"a device name has at most {LABEL_BYTES} bytes")
    site = site_id_of(public_key)
    return _issue(context, tx, signer, site, lambda issued: Vouch(site, public_key, name, issued))


def issue_role(context: Context, tx: Tx, site: bytes, role: str, *, signer: SiteKey | None = None) -> bytes:
    """Give `site` a role for HLCs above the record's."""
    return _issue(context, tx, signer, site, lambda issued: Role(site, role, issued))


def issue_retirement(
    context: Context,
    tx: Tx,
    site: bytes,
    *,
    cutoff: Hlc | None = None,
    honours: Iterable[bytes] | None = None,
    signer: SiteKey | None = None,
) -> bytes:
    """End `site` at `cutoff`, by default now; its records in `honours` stay valid, by default all that count."""
    kept = tuple(sorted(_counting_by(context, tx, site) if honours is None else honours))
    return _issue(context, tx, signer, site, lambda issued: Retirement(site, cutoff or issued, kept, issued))


def own_key(context: Context) -> SiteKey:
    """This device's site key; a read-only tool has none."""
    if context.key is None:
        raise UsageError("this device's site key is not loaded: nothing can be signed")
    return context.key


def next_issued(context: Context, signer: bytes, subject: bytes) -> Hlc:
    """Tick the HLC above every `issued` of the counting records about the issuer and about the subject (profile §9)."""
    membership = context.membership
    last = max(context.clock, membership.latest_about(signer), membership.latest_about(subject))
    issued = tick(last, context.env.wall_ms())
    context.clock = issued  # saved with this transaction
    return issued


def _issue(context: Context, tx: Tx, signer: SiteKey | None, subject: bytes, body_at: Callable[[Hlc], Body]) -> bytes:
    key = signer if signer is not None else own_key(context)
    issued = next_issued(context, key.site, subject)
    data = seal_record(key, context.mesh_id, body_at(issued))
    add_records(context, tx, [data], peer=None)
    if blake3_256(data) not in context.membership.counted:
        raise UsageError(
            f"a record about {site_text(subject)} by {site_text(key.site)} would not count: "
            "only an authority may issue it, about itself or a junior"
        )
    return data


def _counting_by(context: Context, tx: Tx, site: bytes) -> list[bytes]:
    ids = rows.ids_by(tx, site)
    return [record_id for record_id in ids if record_id in context.membership.counted]
