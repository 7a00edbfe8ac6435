"""Encode and decode ledgers as Pulsar offloads them: data objects, index objects, keys and records. Pure.

A *ledger* is a segment made of numbered *entries*. Its data object is a row of *blocks*, each a header, whole entries
and end padding; its *index* gives the offset of each block. `blocks` plans and writes blocks, `block_reader` reads
them, `index` and `metadata` hold the records beside them, `keys` their names. `single_object` is the form of PIP-17's
first version. `message_bytes` and `messages` decode Pulsar's entries; `unbatch` makes one entry of each message.

Writers are strict. Readers accept whatever Pulsar's reader accepts and note it as a *deviation*; on everything else
they end with DataLoss, never in a loop. All input is hostile.
"""
