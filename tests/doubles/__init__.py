"""Stand-ins that tests give to the code: they behave as told."""
