"""The click glue that every stage shares.

    @stage_command("collect", "sender")
    @click.option("--split", required=True)
    def main(params: Params, split: str) -> None:
        \"\"\"Collect the sender's messages.\"\"\"
        from interlat.agents.collect import collect  # heavy imports live inside

Each named section gives the command one flag a setting; params.yaml is the default and a flag wins.
Flags are taken in snake_case and kebab-case, under every name that the setting has; a list takes
several words. A user's mistake is one line on stderr and status 2.
"""

import errno
import logging
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NoReturn, Protocol

import click

from interlat import distributed
from interlat.config import Params, UserError, load_params
from interlat.schema import allowed, field_of, settings

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
log = logging.getLogger(__name__)
_LINE_SECONDS = 15.0
_RANK_0_FIRST_SECONDS = 30.0


class Advance(Protocol):
    """Told how many items are done since the last call, and a note such as `success 81 %`."""

    def __call__(self, done: int, note: str = "", /) -> None: ...


class Settle(Protocol):
    """Says which settings a command line means, as dotted key -> text, from those that it names.

    options: what is not a setting; what Settle takes out of them does not reach the stage.
    """

    def __call__(self, given: dict[str, str], options: dict[str, Any], /) -> dict[str, str]: ...


def stage_command(
    *sections: str,
    parallel: bool = False,
    settle: Settle = lambda given, options: given,
    retired: Sequence[str] = (),
) -> Callable[[Callable[..., None]], click.Command]:
    """Make a function `main(params, **options)` the command of a stage.

    sections: sections (`hidden`) or single settings (`sender.knowledge`, `seed`) to offer as flags.
    parallel: start under torchrun when launch.processes > 1 and join the process group. settle:
    what flags imply. retired: flags of earlier scripts that mean nothing any more, `name=` where
    they have a value; they are taken, and a line says that they are ignored.
    """
    keys = [
        key
        for section in sections
        for key, _, _ in settings(Params)
        if key == section or key.startswith(f"{section}.")
    ]

    named = [_SettingOption(key) for key in keys]
    flags = [flag for option in named for flag in (*option.opts, *option.negations)]
    if twice := {flag for flag in flags if flags.count(flag) > 1}:
        raise ValueError(f"two settings with one flag: {', '.join(sorted(twice))}")

    def decorate(function: Callable[..., None]) -> click.Command:
        def callback(
            params_path: Path, assignments: tuple[str, ...], verbose: bool, **given: Any
        ) -> None:
            values = {option.key: given.pop(str(option.name)) for option in named}
            ignored = [name for name in unused if given.pop(name) is not None]
            overrides = dict(_assignment(text) for text in assignments)
            overrides |= {key: text for key, text in values.items() if text is not None}
            params = load_params(params_path, settle(overrides, given))
            _set_up_logging(verbose)
            distributed.set_threads(params.launch.threads)
            if parallel:
                distributed.relaunch(_processes(params.launch.processes))
            if ignored:
                log.info("not needed here, and ignored: --%s", ", --".join(ignored))
            with distributed.process_group() if parallel else nullcontext():
                function(params, **given)

        own = list(reversed(getattr(function, "__click_params__", [])))
        unused = {name.removesuffix("="): _retired_option(name) for name in retired}
        return StageCommand(
            name=getattr(function, "__name__", "stage"),
            callback=callback,
            help=function.__doc__,
            params=[*own, *named, *unused.values(), *_shared_options()],
            context_settings={
                "token_normalize_func": lambda name: name.replace("-", "_"),
                "help_option_names": ["-h", "--help"],
                "max_content_width": 100,
            },
        )

    return decorate


class Readable(click.Command):
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


class StageCommand(Readable):
    """A command whose options are settings."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the command line, with every list and negation spelled out."""
        options = [param for param in self.params if isinstance(param, _SettingOption)]
        return super().parse_args(ctx, list(_spelled_out(args, options)))


class StageGroup(Readable, click.Group):
    """Commands under one name, without settings: tools."""


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
    start = last = time.monotonic()
    count = 0

    def advance(done: int, note: str = "", /) -> None:
        nonlocal last, count
        count += done
        now = time.monotonic()
        if (count < total or not done) and now - last < _LINE_SECONDS:
            return
        last, rate = now, count / max(now - start, 1e-9)
        left = (total - count) / rate if rate else 0.0
        log.info("%s %d/%d, %.1f/s, %.0f s left %s", description, count, total, rate, left, note)

    return advance


class _SettingOption(click.Option):
    """The flags of a setting: its value is text, or None where the command line is silent."""

    def __init__(self, key: str) -> None:
        item = field_of(Params, key)
        flag = item.metadata["flag"] or key.rpartition(".")[2]
        self.key = key
        self.negations = [f"--{name}" for name in item.metadata["negations"]]
        switch: dict[str, Any] = {"is_flag": False, "flag_value": "true"}
        if not isinstance(item.default, bool):
            switch = {}
        never = f" ({', '.join(self.negations)}: false)" if self.negations else ""
        super().__init__(
            [*(f"--{name}" for name in (flag, *item.metadata["aliases"])), flag],
            metavar="VALUE",
            help=f"{item.metadata['help']}: {allowed(Params, key)}{never}  [{key}]",
            multiple=isinstance(item.default, tuple),
            **switch,
        )

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        """The text as given; the words of a list with commas between them."""
        text = super().process_value(ctx, value)
        return (",".join(text) if text else None) if self.multiple else text


def _spelled_out(args: Sequence[str], options: Sequence[_SettingOption]) -> Iterator[str]:
    """The command line as click reads it.

    `--subjects algebra geometry` becomes `--subjects algebra --subjects geometry`, and
    `--no_sample` becomes `--do_sample=false`.
    """
    lists = {flag for option in options if option.multiple for flag in option.opts}
    negations = {flag: option.opts[0] for option in options for flag in option.negations}
    flag, words = "", 0
    for word in args:
        if word.startswith("--"):
            flag, words = f"--{word[2:].replace('-', '_')}", 0
            yield f"{negations[flag]}=false" if flag in negations else word
        else:
            if words and flag in lists:
                yield flag
            yield word
            words += 1


def _retired_option(name: str) -> click.Option:
    """A flag that nobody needs any more; a switch may have a value, `--disable_tqdm true`."""
    if name.endswith("="):
        return click.Option([f"--{name.removesuffix('=')}"], hidden=True)
    return click.Option([f"--{name}"], hidden=True, is_flag=False, flag_value="true")


def _processes(wanted: int) -> int:
    """How many processes to start: where there are GPUs, at most one for each."""
    if wanted == 1:
        return 1
    import torch

    return min(wanted, torch.cuda.device_count() or wanted)


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
