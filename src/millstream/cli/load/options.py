"""The options of ``millstream load``, generated from the declarations of load settings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from millstream.cli import completion
from millstream.cli.properties import unescaped
from millstream.spark.load.declarations import CYCLES, SPARK, Setting, declared
from millstream.spark.load.settings import OPTIONS, LoadSettings, Shaping
from millstream.spark.sinks.kinds import usages
from millstream.terminal.outcome import UsageError

SETTINGS: Final = {each.name: each for each in declared(LoadSettings)}

_TYPES: Final[Mapping[str, Any]] = {
    "bool": bool,
    "int | None": int | None,
    "float | None": float | None,
    "Sequence[str]": list[str] | None,
}
"""Types of options, for settings that are not text."""
_LEAST: Final = {"int | None": 1, "float | None": 0.001}
_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_MORE: Final = {"size": "such as 64MiB", "text or file": "or @FILE"}


def _in_options(text: str) -> str:
    """A sentence with the options of settings that it has in backquotes."""
    return re.sub(r"`(\w+)`", lambda match: OPTIONS.get(match[1], match[1]), text)


def _option(name: str, **more: Any) -> Any:
    """The typer option of a setting."""
    setting = SETTINGS[name]
    option = setting.option
    assert option is not None
    sentence = option.help or setting.help
    if not option.help and option.reads in _MORE:
        sentence = f"{sentence.removesuffix('.')}, {_MORE[option.reads]}."
    if setting.choices:
        more["autocompletion"] = completion.words(*setting.choices)
    if option.default:
        more["show_default"] = _in_options(option.default)
    if option.reads == "text" and setting.positive:
        more["min"] = _LEAST[setting.type]
    return typer.Option(
        *setting.option_names,
        metavar=option.metavar,
        rich_help_panel=option.panel or None,
        **{"help": _in_options(sentence), **more},
    )


Topics = Annotated[
    list[str] | None,
    typer.Argument(metavar="TOPIC", help=SETTINGS["topics"].help, autocompletion=completion.topics),
]
Pattern = Annotated[str | None, _option("pattern")]
Group = Annotated[str, _option("group_id", autocompletion=completion.groups)]
To = Annotated[str, _option("sink", help=f"{usages()}.", autocompletion=completion.sinks)]
Once = Annotated[
    bool,
    typer.Option("--once", metavar="", help="Load up to the present end and exit.", rich_help_panel=CYCLES),
]
Every = Annotated[
    float,
    typer.Option(
        "--every",
        metavar="SECONDS",
        min=0,
        help="Without --once: how often to look for new records; 0: always.",
        rich_help_panel=CYCLES,
    ),
]
Master = Annotated[
    str,
    typer.Option(
        "--master",
        metavar="URL",
        help="The Spark to work on: local[*], spark://host:7077, …",
        rich_help_panel=SPARK,
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option(
        "--conf", metavar="NAME=VALUE", help="A setting of Spark; repeat it for more.", rich_help_panel=SPARK
    ),
]
Limit = Annotated[
    int, typer.Option("--limit", "-n", metavar="N", min=1, help="Show at most this many, the newest.")
]
LoadValues = Annotated[
    Mapping[str, Any], [each for each in SETTINGS.values() if each.option and each.option.panel]
]
"""Expanded by ``expanded`` into the options of all settings that have a panel."""
ShapingValues = Annotated[
    Mapping[str, Any], [each for each in declared(Shaping) if each.option and each.option.in_replay]
]
"""The same for those of ``load replay``."""


def expanded(command: Callable[..., Any]) -> Callable[..., Any]:
    """Replace a command's parameter ``typed`` by an option for each of its settings.

    The command gets ``typed`` as a mapping from settings' names to values of their types.
    """
    signature = inspect.signature(command, eval_str=True)
    parameters: list[inspect.Parameter] = []
    settings: list[Setting] = []
    for each in signature.parameters.values():
        if each.name == "typed":
            settings = each.annotation.__metadata__[0]
            parameters += map(_parameter, settings)
        else:
            parameters.append(each)

    def run(**given: Any) -> Any:
        typed = {each.name: given.pop(each.name) for each in settings}
        return command(typed={each.name: _value(each, typed[each.name]) for each in settings}, **given)

    run.__doc__ = command.__doc__
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run


def _parameter(setting: Setting) -> inspect.Parameter:
    option = setting.option
    assert option is not None
    kind = str if option.reads == "size" else _TYPES.get(setting.type, str)
    default = setting.default
    if option.negates:
        default = not default
    elif default is None or default == ():
        default, kind = None, kind | None
    return inspect.Parameter(
        setting.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, _option(setting.name)],
    )


def _value(setting: Setting, typed: Any) -> Any:
    """The value of a setting, from what was typed for its option."""
    option = setting.option
    assert option is not None
    if typed is None:
        return setting.default
    if option.negates:
        return not typed
    if isinstance(typed, str):
        return _READERS[option.reads](typed, setting.option_names[0])
    return typed


def read_size(text: str | None, option: str) -> int | None:
    """Bytes, as ``1048576``, ``1024k``, ``1MiB`` or ``1 MB``."""
    if text is None:
        return None
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", text, re.IGNORECASE)
    if match is None or float(match[1]) <= 0:
        raise UsageError(f"{option} {text!r} is not a size: write a number of bytes, or one like 64MiB")
    return max(1, int(float(match[1]) * _UNITS[match[2].lower()]))


def _text_or_file(text: str, option: str) -> str:
    """The text itself, or after @ what a file holds."""
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{option} {text!r}: {(error.strerror or str(error)).lower()}") from None


_READERS: Final[Mapping[str, Callable[[str, str], Any]]] = {
    "text": lambda text, _: text,
    "size": read_size,
    "text or file": _text_or_file,
    "escapes": lambda text, _: unescaped(text),
}
