"""Read segments: find the bytes, fetch them once, check each, and keep what is read next.

A handle (`handle`) pins a snapshot of its segment (`view`), which resolves a range to pieces with candidates, best
first. Local pieces are read straight from chunk files (`local`): from the page cache on the loop, else by a thread.
Cold pieces (`cold`) wait for spans, which `fetch` fills and any number of readers share. `readahead` asks for bytes
before they are wanted, with one window per sequential session. A tier that does not answer is tried again until the
read's deadline (`patience`). `verified` reads and proves for all that works in threads or on executors. `copies` notes
which copies failed and has them read again, `suspects` later once more; `etags` notes which objects were replaced.

`reader` puts it together for one process. From here up trio orchestrates, and blocking work runs in threads.
"""
