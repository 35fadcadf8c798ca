"""`perseid spark dead-letters`: where messages die, and how."""

from __future__ import annotations

from typing import Annotated

import typer

from perseid.cli.flags import flattened
from perseid.cli.spark.running import FOUND, Folders, JobOptions, Report, SomeNamesrv, job


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("dead-letters")(dead_letters)


@flattened
def dead_letters(
    *,
    groups: Annotated[list[str] | None, typer.Argument(help="Consumer groups. Default: all.")] = None,
    namesrv: SomeNamesrv = None,
    folder: Folders = None,
    max_retries: Annotated[int, typer.Option(help="The groups' retryMaxTimes.", min=0)] = 16,
    samples: Annotated[int, typer.Option(help="How many of the last ones are shown.", min=0)] = 20,
    report: Report = None,
    run_options: JobOptions,
) -> None:
    """Dead letters by group, origin, tag and client, with samples.

    Exit code 3: there are some.
    """
    with job("dead letters", run_options) as running:
        from perseid.spark.jobs.dead_letters import dead_letters as run
        from perseid.spark.jobs.dead_letters import lines, page

        found = run(
            running.spark, nameserver=namesrv, groups=groups or (), folders=folder or (), max_retries=max_retries,
            samples=samples, on_progress=running.at,
        )  # fmt: skip
        running.report(lambda: page(found), report)
        running.done("\n".join(lines(found)), found.told())
        if found.records:
            raise typer.Exit(FOUND)
