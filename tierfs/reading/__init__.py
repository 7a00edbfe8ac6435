"""Read segments: find the bytes, fetch them once, check each, and keep what is read next.

Comes in: a segment and a range. Goes out: verified bytes, or an error that says which are missing. It never changes a
record, except to note a copy that failed. Here trio orchestrates, and blocking work runs in threads.
A handle (`handle`) pins a snapshot of its segment (`view`), which resolves a range to pieces with candidates, best
first. `local` reads chunk files, `cold` waits for spans, which any number of readers share; `plain_bytes` turns what is
stored into plain bytes. `readahead` fetches bytes before they are requested. `patience` retries a tier that does not
answer, until the read's deadline. `verified` reads and checks for threads and executors. `copies` notes failed copies,
`suspects` reads them again later.
Rooms: `fetch` (spans and the requests that fill them), `cache` (the disk cache).
Open `reader` first: it puts the wing together for one process.
"""
