"""SSP/1's nouns, pure: site, HLC, event, record, membership, frames, scope, invite."""
