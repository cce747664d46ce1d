"""The click glue that every stage shares.

    @stage_command("collect", "sender")
    @click.option("--split", required=True)
    def main(params: Params, split: str) -> None:
        \"\"\"Collect the sender's messages.\"\"\"
        from interlat.agents.collect import collect  # heavy imports live inside

Each named section gives the command one flag a setting; params.yaml is the default and a flag wins.
Flags are taken in snake_case and kebab-case. A user's mistake is one line on stderr and status 2.
"""

import errno
import logging
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, Protocol

import click

from interlat import distributed
from interlat.config import Params, UserError, load_params
from interlat.schema import allowed, settings

_USER_ERRNOS = frozenset(
    {
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
        errno.ENOSPC,
        errno.EDQUOT,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ENAMETOOLONG,
    }
)
_LINE_SECONDS = 15.0
_RANK_0_FIRST_SECONDS = 30.0


class Advance(Protocol):
    """Told how many items are done since the last call, and a note such as `success 81 %`."""

    def __call__(self, done: int, note: str = "", /) -> None: ...


def stage_command(
    *sections: str, parallel: bool = False
) -> Callable[[Callable[..., None]], click.Command]:
    """Make a function `main(params, **options)` the command of a stage.

    sections: sections (`hidden`) or single settings (`sender.knowledge`, `seed`) to offer as flags.
    parallel: start under torchrun when launch.processes > 1 and join the process group.
    """
    keys = [
        key
        for section in sections
        for key, _, _ in settings(Params)
        if key == section or key.startswith(f"{section}.")
    ]

    flags = [_flag(key) for key in keys]
    if twice := {flag for flag in flags if flags.count(flag) > 1}:
        raise ValueError(f"two settings with one flag: --{', --'.join(sorted(twice))}")

    def decorate(function: Callable[..., None]) -> click.Command:
        def callback(
            params_path: Path, assignments: tuple[str, ...], verbose: bool, **given: Any
        ) -> None:
            values = {key: given.pop(_flag(key)) for key in keys}
            overrides = dict(_assignment(text) for text in assignments)
            overrides |= {key: text for key, text in values.items() if text is not None}
            params = load_params(params_path, overrides)
            _set_up_logging(verbose)
            distributed.set_threads(params.launch.threads)
            if not parallel:
                function(params, **given)
                return
            distributed.relaunch(params.launch.processes)
            with distributed.process_group():
                function(params, **given)

        own = list(reversed(getattr(function, "__click_params__", [])))
        return StageCommand(
            name=getattr(function, "__name__", "stage"),
            callback=callback,
            help=function.__doc__,
            params=[*own, *map(_option, keys), *_shared_options()],
            context_settings={
                "token_normalize_func": lambda name: name.replace("-", "_"),
                "help_option_names": ["-h", "--help"],
                "max_content_width": 100,
            },
        )

    return decorate


class StageCommand(click.Command):
    """A command whose failures a user can read: one line, status 2; interrupts end it cleanly."""

    def main(self, *args: Any, **kwargs: Any) -> NoReturn:
        signal.signal(signal.SIGTERM, _terminate)
        try:
            super().main(*args, **{**kwargs, "standalone_mode": False})
        except click.ClickException as error:
            _fail(error.format_message())
        except UserError as error:
            _fail(str(error))
        except OSError as error:
            if error.errno not in _USER_ERRNOS:
                _let_rank_0_speak()
                raise
            _fail(f"{error.filename or 'output'}: {error.strerror}")
        except (click.Abort, KeyboardInterrupt):
            click.echo("interrupted", err=True)
            sys.exit(128 + signal.SIGINT)
        except Exception:
            _let_rank_0_speak()
            raise
        sys.exit(0)


@contextmanager
def progress_bar(description: str, total: int) -> Iterator[Advance]:
    """Show done/total, rate and time left on rank 0: a bar on a terminal, else a line at times."""
    if not distributed.is_main():
        yield _silent
    elif sys.stderr.isatty():
        with _bar(description, total) as advance:
            yield advance
    else:
        yield _lines(description, total)


@contextmanager
def _bar(description: str, total: int) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(description, total=total, note="")

        def advance(done: int, note: str = "", /) -> None:
            progress.update(task, advance=done, note=note)

        yield advance


def _silent(done: int, note: str = "", /) -> None:
    """Progress that another rank shows."""


def _lines(description: str, total: int) -> Advance:
    log = logging.getLogger("interlat")
    start = last = time.monotonic()
    count = 0

    def advance(done: int, note: str = "", /) -> None:
        nonlocal last, count
        count += done
        now = time.monotonic()
        if count < total and now - last < _LINE_SECONDS:
            return
        last, rate = now, count / max(now - start, 1e-9)
        left = (total - count) / rate if rate else 0.0
        log.info("%s %d/%d, %.1f/s, %.0f s left %s", description, count, total, rate, left, note)

    return advance


def _option(key: str) -> click.Option:
    help_text = next(item.metadata["help"] for name, item, _ in settings(Params) if name == key)
    option = partial(
        click.Option,
        [f"--{_flag(key)}", _flag(key)],
        metavar="VALUE",
        help=f"{help_text}: {allowed(Params, key)}  [{key}]",
    )
    if allowed(Params, key) == "true or false":
        return option(is_flag=False, flag_value="true")
    return option()


def _flag(key: str) -> str:
    """The flag of a setting: the one that its users know, else its own name."""
    item = next(item for name, item, _ in settings(Params) if name == key)
    return item.metadata["flag"] or key.rpartition(".")[2]


def _shared_options() -> list[click.Parameter]:
    return [
        click.Option(
            ["--params", "params_path"],
            type=click.Path(path_type=Path),
            default=Path("params.yaml"),
            show_default=True,
            help="the settings' file",
        ),
        click.Option(
            ["--set", "assignments"],
            multiple=True,
            metavar="KEY=VALUE",
            help="any setting by its dotted key, as in --set hidden.source=none",
        ),
        click.Option(["--verbose"], is_flag=True, help="log more"),
    ]


def _assignment(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise UserError(f"--set {text}: expected KEY=VALUE, as in --set hidden.source=none")
    return key, value


def _set_up_logging(verbose: bool) -> None:
    level = logging.DEBUG if verbose else logging.INFO
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    logging.getLogger("interlat").setLevel(level if distributed.is_main() else logging.WARNING)


def _terminate(number: int, frame: object) -> NoReturn:
    sys.exit(128 + number)


def _fail(message: str) -> NoReturn:
    _let_rank_0_speak()
    click.echo(f"error: {' '.join(message.split())}", err=True)
    sys.exit(2)


def _let_rank_0_speak() -> None:
    """Wait, on other ranks: where rank 0 fails too, it says why, and its end ends them silently."""
    if not distributed.is_main():
        time.sleep(_RANK_0_FIRST_SECONDS)
