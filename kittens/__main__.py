"""`python -m kittens` is the command `kittens`."""

from kittens.cli import main

main(prog_name="kittens")
