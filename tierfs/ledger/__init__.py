"""Ledgers as Pulsar offloads them: the bytes of data objects, index objects, keys and records. Pure.

A *ledger* is a segment made of numbered *entries*. Its data object is a row of *blocks*, each a header, whole
entries and end padding; its *index* says where each block begins. `blocks` plans and writes blocks,
`block_reader` reads them, `index` and `metadata` hold what lies beside them, `keys` their names.
`single_object` is the form of PIP-17's first version, which no Pulsar ever wrote. `messages` takes apart what Pulsar
puts into entries.

Writers are strict. Readers take what Pulsar's reader takes and note it as a *deviation*; on everything else they
end with DataLoss, never in a loop. Everything they are given is hostile. May be imported by the layers above
chunkstore.
"""
