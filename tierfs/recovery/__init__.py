"""Rebuilding a store whose local disk is lost from its bucket alone (invariant 11).

`bucket` reads the journal, `rebuild` replays it, `takeover` wins the bucket, `loss` settles what was not cold,
`recover` composes them.
`listing`, `cover`, `verify` and `from_objects` do the same when the journal is lost too.
"""
