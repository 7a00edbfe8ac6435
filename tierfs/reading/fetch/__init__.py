"""Fetch spans of cold objects once, however many readers wait for them.

`span_cache` maps an object's ranges to spans and evicts those nobody waits for; `span` is the memory and its state;
`fetcher` fills it from the disk cache or the cold tier and asks a second time when the first answer is slow; `queue`
orders the transfers, small ones that readers wait for first; `grid` holds the checksums that every block is compared
with; `buffers` are the memory, under one budget.
"""
