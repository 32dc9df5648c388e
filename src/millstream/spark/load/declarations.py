"""How a setting is declared: a field of a dataclass, what it is for, and how the command line spells it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Concatenate, Final, Literal, ParamSpec, TypeVar

CYCLES: Final = "Cycles"
SHAPE: Final = "What rows are made of"
TABLE: Final = "The table"
START: Final = "Where it starts"
SPARK: Final = "Spark and the group"
PANELS: Final = ("", CYCLES, SHAPE, TABLE, START, SPARK)
"""The panels of ``millstream load --help``, in this order."""

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Option:
    """How the command line spells a setting."""

    panel: str = ""
    metavar: str = ""
    """Stands for the value; empty for a flag."""
    names: tuple[str, ...] = ()
    """Without them the option is called like the setting: ``--max-records``."""
    help: str = ""
    """In place of the setting's sentence."""
    reads: Literal["text", "size", "text or file", "escapes"] = "text"
    """The text after the option: itself, ``64MiB``, itself or ``@FILE``, or with escapes such as ``\\t``."""
    negates: bool = False
    """A flag that sets the setting to False."""
    default: str = ""
    """The default in words, where the value does not say it."""
    in_replay: bool = True
    """Whether ``load replay`` has it, if it is a setting of ``Shaping``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """All that is known of a setting."""

    name: str
    type: str
    default: Any
    help: str
    option: Option | None = None
    choices: tuple[str, ...] = ()
    positive: bool = False
    not_empty: bool = False
    client_setting: str = ""
    """The consumer setting that it is, under Kafka's name: ``properties`` must not contain that."""

    @property
    def option_names(self) -> tuple[str, ...]:
        """What is typed for it; nothing where the command line does not have it."""
        if self.option is None:
            return ()
        return self.option.names or (f"--{self.name.replace('_', '-')}",)


def about(sentence: str, option: Option | None = None, **more: Any) -> Mapping[str, Any]:
    """What the metadata of a field says: see ``Setting``."""
    return {"help": sentence, "option": option, **more}


def setting(
    default: Any, sentence: str, option: Option | None = None, *, secret: bool = False, **more: Any
) -> Any:
    """A field with a default, and what is known of it. One that may hold a ``secret`` is not in the repr."""
    return field(default=default, repr=not secret, metadata=about(sentence, option, **more))


def declared(settings: type[Any]) -> list[Setting]:
    """The settings that are fields of this class, panel by panel."""
    found = [
        Setting(name=each.name, type=str(each.type), default=each.default, **each.metadata)
        for each in fields(settings)
    ]
    return sorted(found, key=lambda each: PANELS.index(each.option.panel if each.option else ""))


def taking(
    settings: Callable[P, S],
) -> Callable[[Callable[[T, S], None]], Callable[Concatenate[T, P], None]]:
    """Let an ``__init__`` take the fields of ``settings`` as parameters; type checkers see them, too."""

    def decorate(init: Callable[[T, S], None]) -> Callable[Concatenate[T, P], None]:
        def made(self: T, /, *given: P.args, **named: P.kwargs) -> None:
            init(self, settings(*given, **named))

        own = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
        parameters = [*own, *inspect.signature(settings).parameters.values()]
        made.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return made

    return decorate


def options(settings: type[Any]) -> dict[str, str]:
    """The option of each setting that has one."""
    return {each.name: each.option_names[0] for each in declared(settings) if each.option_names}


def parameter_list(settings: type[Any]) -> str:
    """A line for each setting, for a docstring."""
    return "\n".join(f"    - ``{each.name}``: {each.help}" for each in declared(settings))
