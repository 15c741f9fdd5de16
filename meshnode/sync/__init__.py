"""One peer's delivery as a state machine without I/O: bytes and time come in, effects come out.

What a driver does (the node's link does it over QUIC, `tests/support/pair.py` over memory):

1.  Make a `Session` once the peer is authenticated. `admitted=False` where it is not in the keyring: feed it the
    control stream only; it answers `Introduced` once, or `Close`. Store those records; if the peer is a member now, go
    on with 2, else close with code 3.
2.  Read a `LinkState` from the store and give it to `start`. Nothing is sent before that.
3.  Every input returns effects. Carry them out in order; `SendControl` and `SendEvents` are exact stream bytes. After a
    `Close` nothing else comes, and every later input returns nothing.
4.  Jobs are effects that are answered by an input of the same session, exactly once:

    ==========  ================================================  ================================
    effect      store call, one transaction on the writer thread  input
    ==========  ================================================  ================================
    Advance     engine.outbox.advance                             `advanced(Advanced | None, now)`
    Resend      engine.outbox.resend                              `resent(frames | None, now)`
    NewEpoch    engine.outbox.open_epoch                          `epoch_opened(stream | None, now)`
    Answer      engine.outbox.queue_answer                        `answer_stored(bool, now)`
    Commit      engine.inbox.receive                              `committed(Committed | None, now)`
    ==========  ================================================  ================================

    At most one sending job and one `Commit` are under way, and the session never waits for one: other inputs may come
    in between. The input is given only after the transaction is on disk. A job that raises CorruptStateError is
    answered by `stream_failed` (sending side) or ends the link (`Commit`); any other error ends it with code 9.
5.  Call `timer` when `next_timer` has come; ask it again after every input. `now` is the wall clock in milliseconds: it
    may step back, which only makes things happen sooner.
6.  Tell every session `log_grew` after anything was committed by others than itself, `requests` when this node wants
    something of its peer, `linked` whenever a link began or ended, and `hurry` when somebody waits until the peer has
    everything. `Commit` results with `added` are such commits: tell the *other* sessions.
7.  A session holds no truth. Drop it at any moment, after any effect; a new one from a new `LinkState` goes on. Have
    one session per peer at a time, and read the `LinkState` of the next only when the jobs of the one before have
    ended. Where two overlap all the same nothing is lost: the store refuses the jobs of the one whose epoch is not
    current any more, and that session closes its link (code 6).
"""
