"""A seeded simulator in virtual time: the production code of `sync`, `engine` and `store` under all that can go wrong.

One seed decides everything: what the network does, when processes die, what is written, who lies. `python tests/sim
--seed N` replays it exactly. `world` puts a run together; `workload` and `trouble` act; `checkers` only look.
"""
