"""`python -m tierfs` is the command `tierfs`."""

from tierfs.cli.main import main

main()
