"""`python -m kittens` is the command `kittens`."""

from kittens.cli import main

if __name__ == "__main__":  # worker processes import this module too
    main(prog_name="kittens")
