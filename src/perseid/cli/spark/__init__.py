"""`perseid spark …`: the jobs of `perseid.spark.jobs` as commands, one file each; what they share is in `running`."""

from __future__ import annotations

import typer

from perseid.cli.spark import archive, audit, dead_letters, package, replay, stats, time_travel, trace

COMMANDS = (archive, replay, time_travel, audit, stats, trace, dead_letters, package)
"""In the order in which `perseid spark --help` shows them."""

spark_app = typer.Typer(help="Jobs on Spark, over topics and store folders.", no_args_is_help=True)
for command in COMMANDS:
    command.register(spark_app)


def register(app: typer.Typer) -> None:
    """Add the commands to the `perseid` command."""
    app.add_typer(spark_app, name="spark")
