"""Keep objects in an S3 bucket, AWS's or any compatible one. The only folder that imports botocore.

`storage` is the provider. `upload` sends one object, in parts if it is long; `compose` makes one of ranges of others
with server-side copies, by a `compose_plan`; `read` fetches ranges straight into the caller's buffer. `client` holds
botocore, `credentials` renews, and `signed_urls` keeps URLs for other HTTP clients; `errors` turns each answer
into one line without a credential. `probe` finds by experiment which conditions and checksums a server honours.
`location` needs no vendor package, so that it is cheap to import.
"""
