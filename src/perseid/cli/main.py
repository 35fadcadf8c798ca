"""The `perseid` command: each module of this folder adds its commands with `register(app)`."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer

from perseid.base.errors import PerseidError

UsageError: Any = typer.BadParameter.__base__
"""The root of errors in a command line. Its module depends on typer's version."""
FAILED = 1
COMMANDS = {
    "perseid.cli.servers": {
        "namesrv": "Run a name server until SIGTERM or Ctrl-C.",
        "broker": "Run a broker, or several with one configuration, until SIGTERM or Ctrl-C.",
        "up": "Run a name server and a broker in one process. Prints one line when the broker accepts messages.",
        "dledger": "Run a member of a DLedger (Raft) group, a replicated log without broker, until SIGTERM or Ctrl-C.",
        "controller": "Run a controller, a member of the group that elects the masters of broker sets, until SIGTERM"
        " or Ctrl-C.",
    },
    "perseid.cli.messages": {
        "send": "Send messages. Exit code 0: brokers have stored all of them.",
        "consume": "Print the messages that a topic has now, queue by queue, in order.",
    },
    "perseid.cli.topics": {"topic": "Create, change, delete and show topics."},
    "perseid.cli.admin": {"admin": "Administer topics, groups, messages, users and brokers."},
    "perseid.cli.settings": {
        "settings": "Explain settings: effect, default, unit, limits, and whether a running node follows changes.",
    },
    "perseid.cli.verify": {"verify": "Check that a cluster keeps all messages that it has acknowledged."},
    "perseid.cli.spark": {"spark": "Jobs on Spark, over topics and store folders."},
    "perseid.cli.sim": {
        "sim": "Simulate brokers, controllers or Raft groups and their clients in virtual time, with faults drawn from"
        " seeds.",
    },
}
"""Modules and the commands that each registers, in the order in which `perseid --help` shows them, with the first line
of each one's help. A command imports its own module alone; `--help` and a name that is no command import none."""
FIRST_STEPS = (
    "First steps: `perseid up --data DIR` runs a broker. In a second terminal, `perseid send hello 'a message'` and"
    " `perseid consume hello`."
)
CREDENTIALS = "PERSEID_CREDENTIALS"
WITH_VALUES = frozenset(("--credentials", "--ca", "--cert", "--key", "--server-name"))
FLAGS = frozenset(("--tls", "--insecure"))
"""What may stand before a command, and is none."""


def _print_version(wanted: bool) -> None:
    if wanted:
        from perseid.app.about import describe  # imports the core

        typer.echo(describe())
        raise typer.Exit()


def options(
    _: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    credentials: Annotated[
        Path | None,
        typer.Option(
            envvar=CREDENTIALS,
            metavar="FILE",
            help="The user that signs requests, in clusters with users: two lines, accessKey: NAME and secretKey: KEY.",
        ),
    ] = None,
    tls: Annotated[
        bool,
        typer.Option("--tls", envvar="PERSEID_TLS", help="Use TLS. Each of the next five options also turns it on."),
    ] = False,
    ca: Annotated[
        str,
        typer.Option(
            envvar="PERSEID_CA", help="PEM file: the CAs of the servers' certificates. Default: the system's."
        ),
    ] = "",
    cert: Annotated[str, typer.Option(envvar="PERSEID_CERT", help="PEM file: a certificate to show to servers.")] = "",
    key: Annotated[str, typer.Option(envvar="PERSEID_KEY", help="PEM file: its key, if it is in another file.")] = "",
    server_name: Annotated[
        str,
        typer.Option(
            envvar="PERSEID_SERVER_NAME",
            help="The name that servers' certificates must have. Default: the host of the address.",
        ),
    ] = "",
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure", envvar="PERSEID_INSECURE", help="Don't verify servers' certificates. For trials only."
        ),
    ] = False,
) -> None:
    """A message broker, compatible with Apache RocketMQ on the wire and on disk."""
    if credentials is not None:
        os.environ[CREDENTIALS] = str(credentials.expanduser().absolute())  # where each client looks, Spark's too
    if tls or ca or cert or key or server_name or insecure:
        from perseid.client.tls import ClientTls, use  # only for who asks for it

        password = os.environ.get("PERSEID_KEY_PASSWORD", "")
        use(ClientTls(ca, cert, key, password, verify=not insecure, server_name=server_name))


def command_line(*modules: str) -> typer.Typer:
    """The command with the commands of these modules."""
    app = typer.Typer(
        name="perseid",
        help=options.__doc__,
        epilog=FIRST_STEPS,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(options)
    for name in modules:
        import_module(name).register(app)
    return app


def needed(words: list[str]) -> list[str]:
    """The modules that these words of a command line need: that of the command which they name, or none."""
    while words and words[0].partition("=")[0] in WITH_VALUES | FLAGS:
        words = words[2 if words[0] in WITH_VALUES else 1 :]
    first = words[0] if words else ""
    return [name for name, commands in COMMANDS.items() if first in commands]


def with_names(*modules: str) -> typer.Typer:
    """The command with the commands of these modules, and the names of all others, for `--help` and suggestions."""
    app = command_line()
    for name, commands in COMMANDS.items():
        if name in modules:
            import_module(name).register(app)
            continue
        for command, text in commands.items():
            app.command(command, help=text)(_not_imported)
    return app


def _not_imported() -> None:
    raise AssertionError("a command whose module was not imported: `needed` reads other words than the parser")


def __getattr__(name: str) -> typer.Typer:
    """`app`, the whole command, for programs that call it within their own process."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    app = command_line(*COMMANDS)
    globals()[name] = app
    return app


def run(words: list[str]) -> int:
    """Run a command line to its end; the exit code. A mistake in it is one line on stderr, and 2."""
    try:
        code = with_names(*needed(words))(words, standalone_mode=False, prog_name="perseid")
    except UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # not exported; its text is the help
            error.show()
        else:
            print(one_line(error), file=sys.stderr)
        return int(error.exit_code)
    except typer.Abort:
        print("perseid: aborted", file=sys.stderr)
        return FAILED
    except PerseidError as error:
        print(f"perseid: {error}", file=sys.stderr)
        return FAILED
    return int(code or 0)


def one_line(error: Any) -> str:
    """What is wrong with a command line, and where the right words are."""
    command = error.ctx.command_path if error.ctx is not None else "perseid"
    text = " ".join(error.format_message().split()).rstrip(".")
    possible = getattr(error, "possibilities", None)
    if possible:
        text = f"{error.message}. Did you mean {' or '.join(sorted(possible))}?"
    return f"{command}: {text}{' ' if text.endswith('?') else '; '}Help: {command} --help"


def main() -> None:
    """Run the command; an error that we foresaw is one line on stderr and exit code 1."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")  # a terminal that knows ASCII alone
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
