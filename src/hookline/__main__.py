"""`python -m hookline` is the command `hookline`."""

from hookline.cli.main import main

main()
