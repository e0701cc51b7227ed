"""The command line: `kittens doctor`, `conform`, `show`, `bench`, `tune`. The only part that imports click and rich.

Each command is a module here. `Commands` turns a user's error into a message and an exit code.
"""

from __future__ import annotations

from typing import Any

import click

from kittens.cli import bench, conform, doctor, show, tune
from kittens.errors import InternalError, KittensError, UnavailableError

EXIT_CODES = """
\b
Exit codes:
  0    all went well
  1    something failed: a conformance case, a check
  2    the command line, a kernel or its arguments are wrong
  3    the target lacks something on this machine; the message names it
  130  interrupted
"""


class Commands(click.Group):
    """A group whose commands end with a message and an exit code where an error is the user's to mend."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except InternalError:
            raise
        except KittensError as error:
            click.echo(f"kittens: {error}", err=True)
            ctx.exit(3 if isinstance(error, UnavailableError) else 2)
        except KeyboardInterrupt:
            click.echo("kittens: interrupted", err=True)
            ctx.exit(130)


@click.group(cls=Commands, epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="kittens-gpu", prog_name="kittens")
def main() -> None:
    """Kernels written once in Python, for GPUs of every vendor and for NumPy."""


for _command in (doctor.doctor, conform.conform, show.show, bench.bench, tune.tune):
    main.add_command(_command)
