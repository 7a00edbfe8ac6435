"""Encode and decode ledgers as Pulsar offloads them: data objects, index objects, keys and records. Pure.

A *ledger* is a segment made of numbered *entries*. Its data object is a row of *blocks*, each a header, whole entries
and end padding; its *index* gives the offset of each block. `blocks` plans and writes blocks, `block_reader` reads
them, `index` and `metadata` hold the records beside them, `index_codec` their bytes, `keys` their names.
`single_object` is the form of PIP-17's first version. `messages` decodes Pulsar's entries to `message_records`, by
`message_bytes` and `compression`; `unbatch` makes one entry of each message.

Writers are strict. Readers accept whatever Pulsar's reader accepts and note it in `deviations`; on everything else
they end with DataLoss, never in a loop. All input is hostile.
"""
