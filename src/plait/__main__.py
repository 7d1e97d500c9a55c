"""`python -m plait` is `plait`."""

from plait.cli.main import main

main()
