"""Cold tiers in places that fsspec reaches, as a user has them."""
