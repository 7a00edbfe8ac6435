"""The verbs of a life, a module for each kind of actor. Importing this enters all of them into the table."""

from tests.simulation.verbs import (
    addresses,
    archive,
    batches,
    compression,
    dumps,
    foreign,
    holder,
    hosts,
    ledgers,
    lifetimes,
    moves,
    operator,
    rot,
    streams,
    tiering,
    writing,
)

ALL = (
    addresses,
    archive,
    batches,
    compression,
    dumps,
    foreign,
    holder,
    hosts,
    ledgers,
    lifetimes,
    moves,
    operator,
    rot,
    streams,
    tiering,
    writing,
)
