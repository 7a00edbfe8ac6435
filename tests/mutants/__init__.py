"""The ledger of safety lines: each with a change that takes it away, and the test that must fail then."""
