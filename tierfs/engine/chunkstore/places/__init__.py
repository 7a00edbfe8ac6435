"""Keep objects in places that fsspec reaches: HDFS, Google's and Azure's storage, and file systems for trying out.

`address` tells the places by the scheme of a URL and connects to them; the packages of each are an extra. `storage`
is the one provider; `place` states what a place does for it, and `place_errors` maps all vendors' errors. `file_place`
makes objects of `files` that have a rename and no metadata of their own: `webhdfs` and `native_hdfs`, `sftp` and
`filesystem` are such files, and `gcs` and `azure` are places of objects.
"""
