"""Options that several commands have."""

from __future__ import annotations

import click

to_json = click.option(
    "--json",
    "json_file",
    metavar="FILE",
    help='Write JSON to FILE ("-": standard output, without the table).',
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
rounds = click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=7,
    show_default=True,
    help="Rounds in which contenders take turns.",
)
arguments = click.option(
    "--arg", "args", multiple=True, metavar="ARG", help="An argument, in order: float32[1024,64], 3, none."
)
constants = click.option(
    "--const", "constants", multiple=True, metavar="NAME=VALUE", help="A constant, as in right=0."
)
pattern = click.option(
    "-k", "pattern", metavar="PATTERN", help="Only those whose name contains or matches PATTERN."
)
