"""The mount without a mount."""
