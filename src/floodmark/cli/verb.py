"""Verbs of the command line: functions of a Call, with the options that all of them share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import typer

from floodmark.cli.call import Call
from floodmark.errors import ConfigError

ProjectOption = Annotated[
    str | None,
    typer.Option(
        "--project",
        metavar="DIR",
        help="The project's folder; else the floodmark.yaml here or above.",
    ),
]
EnvOption = Annotated[
    str | None,
    typer.Option(
        "--env",
        metavar="NAME",
        help="The overlay env/NAME.yaml; else the one that FLOODMARK_ENV names.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", help="More logs, and tracebacks.")]

_SHARED: dict[str, tuple[Any, Any]] = {
    "project": (ProjectOption, None),
    "env": (EnvOption, None),
    "as_json": (JsonOption, False),
    "is_verbose": (VerboseOption, False),
}

VerbFunction = Callable[..., int]


def at_least(minimum: int, option: str, value: int | None) -> int | None:
    """The value of an option, if it is large enough; raises FM-CONFIG-007.

    Not `min=` of Typer: its message is pydantic's and does not say what to do next.
    """
    if value is not None and value < minimum:
        raise ConfigError(
            "FM-CONFIG-007",
            f"{option} is {value}",
            rule="out_of_range",
            allowed=f"{minimum} or more",
            state="nothing was read or written",
            next="correct the option",
        )
    return value


def seconds(option: str, value: str, or_else: str = "") -> float:
    """The seconds of a duration given as an option; raises FM-CONFIG-007.

    `or_else` says what else the option takes.
    """
    from floodmark.model.durations import ALLOWED, seconds_of

    try:
        return seconds_of(value)
    except ValueError as error:
        raise ConfigError(
            "FM-CONFIG-007",
            f"{option} is {value}",
            rule="duration",
            allowed=f"{or_else}{ALLOWED}",
            state="nothing was read or written",
            next="correct the option",
        ) from error


def group(text: str) -> typer.Typer:
    """A verb that has verbs of its own."""
    return typer.Typer(help=text, no_args_is_help=True, rich_markup_mode=None)


def verb(
    app: typer.Typer, name: str, *, is_beside: bool = False, **settings: Any
) -> Callable[[VerbFunction], VerbFunction]:
    """Attach a function `(call, ...) -> exit code` to an app, with the shared options.

    One that may call Spark or functions of others goes on beside the main thread; see `Call.run`.
    """

    def attach(function: VerbFunction) -> VerbFunction:
        app.command(name, **settings)(_command(function, is_beside=is_beside))
        return function

    return attach


def _command(function: VerbFunction, *, is_beside: bool) -> Callable[..., None]:
    def command(ctx: typer.Context, **values: Any) -> None:
        root = ctx.find_root()
        shared = {key: values.pop(key) or root.params.get(key) for key in _SHARED}
        call = Call(
            shared["project"],
            env=shared["env"],
            as_json=bool(shared["as_json"]),
            is_verbose=bool(shared["is_verbose"]),
            opening=root.obj,
        )
        raise typer.Exit(call.run(partial(function, call, **values), is_beside=is_beside))

    # Typer reads the options from the signature: the verb's own ones, then the shared ones.
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    kind = inspect.Parameter.KEYWORD_ONLY
    shared = [
        inspect.Parameter(key, kind, default=default, annotation=annotation)
        for key, (annotation, default) in _SHARED.items()
    ]
    context = inspect.Parameter(
        "ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
    )
    parameters = [context, *(p.replace(kind=kind) for p in own), *shared]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    command.__doc__ = function.__doc__
    return command
