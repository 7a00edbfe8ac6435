"""Keep objects in places that fsspec reaches: HDFS, Google's and Azure's storage, and file systems for trying out.

`address` tells the places by the scheme of a URL and connects to them; the packages of each are an extra. `storage`
is the one provider; `place` states what a place does for it, and maps all vendors' errors. `files` makes objects of
files that have a rename and no metadata of their own; `hdfs` and `filesystem` are such files, and `gcs` and
`azure` are not.
"""
