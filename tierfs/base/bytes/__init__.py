"""Work with bytes and ranges, whatever they are of: checksums, joins, times, pieces done side by side.

`checksum` is CRC32C and how sums of parts combine. `ranges` are half-open ranges and sets of them, `joins` places where
one segment was appended to another, `byte_times` the times of bytes by their positions. `parallel` does independent
pieces at once, and `progress` counts and shows what is done. `frozen` makes records without the cost of the standard
library's decorator.
"""
