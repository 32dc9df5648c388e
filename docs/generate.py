"""Write the generated parts of the documentation: ``python docs/generate.py`` (``make docs`` does it).

A page marks each part with ``<!-- generated: NAME -->`` and ``<!-- end -->``; the text between them comes
from the code. So does one module: the types of the keywords that clients take. ``--check`` writes nothing,
and fails if a file is out of date; the tests use it.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from typer.main import get_command

from millstream.broker.dispatch import handler_notes
from millstream.broker.groups.state import states
from millstream.broker.log.config import TOPIC_SETTINGS
from millstream.broker.scrape import broker_metrics
from millstream.broker.settings import BrokerSettings
from millstream.cli.app import app
from millstream.config import AdminConfig, ClientConfig, ConsumerConfig, ProducerConfig
from millstream.config.registry import RegistryWriterSettings
from millstream.config.security import SecuritySettings
from millstream.consumer.assignors.registry import BUILT_IN
from millstream.consumer.membership import phases
from millstream.serde import FORMATS, DeserializerChoice, Schema, SerializerChoice
from millstream.settings import Address, Settings, dotted
from millstream.spark.load.declarations import Setting, declared
from millstream.spark.load.settings import LoadSettings
from millstream.spark.source.options import OPTIONS
from millstream.wire.apis import all_apis

DOCS = Path(__file__).parent
PACKAGE = DOCS.parent / "src" / "millstream"
KEYWORDS = PACKAGE / "config" / "keywords.py"
SHARED = {"--bootstrap-servers", "--json", "--debug", "--property"}
"""Options that every command has."""
PART = re.compile(r"(?P<begin><!-- generated: (?P<name>[\w ]+) -->\n).*?(?P<end><!-- end -->)", re.DOTALL)


def table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table."""
    head, *lines = (f"| {' | '.join(map(str, row))} |\n" for row in (titles, *rows))
    return "".join([head, "|" + "-|" * len(titles) + "\n", *lines])


def settings_table(cls: type[Settings], *bases: type[Settings], spell: Callable[[str], str] = str) -> str:
    """Return the settings of a class, spelled by ``spell``, without those that are the same in ``bases``."""
    shared = [each for base in bases for each in base.declared()]
    rows = sorted((f"`{spell(each.name)}`", *each[1:]) for each in cls.declared() if each not in shared)
    return table(("setting", "default", ""), rows)


def topic_table() -> str:
    """Return the settings of topics, each with the broker setting that gives its default."""
    rows = (
        (f"`{each.name}`", each.shown, f"`{each.broker_name}`" if each.broker_name else "", each.meaning)
        for each in TOPIC_SETTINGS.values()
    )
    return table(("topic setting", "default", "broker setting", ""), rows)


def refused_table() -> str:
    """Return Kafka's settings that the clients refuse, with the reasons."""
    reasons: dict[str, list[str]] = {}
    for cls in (ClientConfig, ConsumerConfig, ProducerConfig, AdminConfig):
        for name, reason in cls.REFUSED.items():
            names = reasons.setdefault(reason, [])
            if f"`{name}`" not in names:
                names.append(f"`{name}`")
    return table(("setting", "why"), ((", ".join(names), reason) for reason, names in reasons.items()))


def formats_table() -> str:
    """Return the formats of keys and values that have a name."""
    rows = (
        (f"`{each.name}`", each.encoding, each.python, (each.arrow or "").rstrip("_"))
        for each in FORMATS.values()
    )
    return table(("name", "bytes", "Python", "column of `poll_arrow`"), rows)


def assignors_table() -> str:
    """Return the built-in assignors, described by the first line of their docstrings."""
    rows = (
        (f"`{each.name}`", (each.__doc__ or "").splitlines()[0], max(each.protocols).name.lower())
        for each in BUILT_IN
    )
    return table(("`partition_assignment_strategy`", "", "protocol"), rows)


def protocol_table() -> str:
    """Return every API that the broker speaks, with its versions."""
    notes = handler_notes()
    rows = (
        (key, api.name, f"{api.min_version} to {api.max_version}", notes.get(api, ""))
        for key, api in all_apis().items()
    )
    return table(("key", "API", "versions", "on the embedded broker"), rows)


def source_table() -> str:
    """Return the options of the Spark source."""
    rows = [
        (
            f"`{each.name}`",
            each.shown or ("" if each.default in (None, ()) else f"`{str(each.default).lower()}`"),
            f"{each.only} only: {each.meaning}" if each.only else each.meaning,
        )
        for each in OPTIONS.values()
    ]
    servers = ("`kafka.bootstrap.servers`", "required", "brokers, as `host:port,host:port`")
    group = (
        "`kafka.group.id`",
        "",
        "the [group](#progress-in-a-consumer-group) to start from, and to commit to if asked",
    )
    more = "any other [consumer setting](settings.md): `kafka.isolation.level=read_committed`"
    return table(("option", "default", ""), [servers, *rows, group, ("`kafka.…`", "", more)])


def scenarios_table() -> str:
    """Return what Spark's own source and ours say to the scenarios of Spark's suites."""
    sys.path.insert(0, str(DOCS.parent))
    from tests.spark.scenarios import SCENARIOS

    rows = ((each.what, each.spark, f"{each.ours}{each.why and ': '}{each.why}") for each in SCENARIOS)
    return table(("scenario", "Spark's source", "this one"), rows)


def load_settings_table() -> str:
    """Return the settings of loads, with their options."""
    rows = (
        (f"`{each.name}`", ", ".join(f"`{name}`" for name in each.option_names), _default(each), each.help)
        for each in declared(LoadSettings)
    )
    return table(("setting", "on the command line", "default", "what it is for"), rows)


def _default(setting: Setting) -> str:
    if setting.default is MISSING:
        return "required"
    if setting.option is not None and setting.option.default:
        return setting.option.default
    return "" if setting.default in (None, ()) else f"`{setting.default!r}`"


def load_options_table() -> str:
    """Return the options of ``millstream load run``, without those that all commands share."""
    root: Any = get_command(app)
    found = [each for each in root.commands["load"].commands["run"].params if each.opts[0] not in SHARED]
    return table(("option", "what it is for"), map(_option_row, found[1:]))


def _option_row(option: Any) -> tuple[str, str]:
    name, *aliases = option.opts
    spelled = ", ".join(f"`{each}`" for each in (f"{name} {option.metavar}".strip(), *aliases))
    default = option.show_default if isinstance(option.show_default, str) else option.default
    shown = "" if default in {None, False} else f" Default: `{default}`."
    return spelled, option.help.replace("[*]", "\\[*]").replace("|", "\\|") + shown


def broker_metrics_table() -> str:
    """Return every metric of the broker, as it is declared."""
    rows = (
        (f"`{each.name}`", each.kind, ", ".join(f"`{label}`" for label in each.labels), each.help)
        for each in broker_metrics()
    )
    return table(("metric", "kind", "labels", "what it is"), rows)


def group_states() -> str:
    """Return the states of a group as a Mermaid diagram."""
    lines = ["[*] --> Empty"]
    for state, meaning in states.MEANING.items():  # the first of two descriptions is the title
        lines += [f"{state.value}: {state.value}", f"{state.value}: {meaning}"]
    lines += [
        f"{before.value} --> {after.value}: {why}" for (before, after), why in states.TRANSITIONS.items()
    ]
    return _diagram([*lines, "Dead --> [*]"])


def member_phases() -> str:
    """Return the phases of a group's member as a Mermaid diagram."""
    steps = (
        f"{phase.value} --> {after.value}: {cause}"
        for phase, transitions in phases.ALLOWED.items()
        for after, cause in transitions.items()
    )
    return _diagram(["[*] --> Unjoined", *steps, "Closed --> [*]"])


def _diagram(lines: Iterable[str]) -> str:
    text = "\n".join(f"    {line}" for line in lines)
    return f"```mermaid\nstateDiagram-v2\n{text}\n```\n"


def file_map() -> str:
    """Return every source file with the first line of its docstring, by folder."""
    folders: dict[Path, dict[str, str]] = defaultdict(dict)
    for path in sorted(PACKAGE.rglob("*.py")):
        summary = (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0]
        folders[path.parent][path.name] = summary.replace("``", "`")
    return "\n".join(_folder_map(folder, files) for folder, files in sorted(folders.items()))


def _folder_map(folder: Path, files: dict[str, str]) -> str:
    head = f"## {folder.relative_to(PACKAGE.parent)}\n\n{files.pop('__init__.py')}\n"
    rows = [(f"`{name}`", summary) for name, summary in files.items()]
    return f"{head}\n{table(('file', 'what it is'), rows)}" if rows else head


KEYWORDS_HEAD = '''"""The types of the keywords that clients take: a type checker knows every setting.

Generated by docs/generate.py from the settings in this package: run ``make docs`` after changing one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypedDict

from millstream.serde import DeserializerChoice, Schema, SerializerChoice
'''


def keywords_module() -> str:
    """Return the module with a TypedDict for each client: what its settings may be given as."""
    parts = [KEYWORDS_HEAD]
    for cls in (ClientConfig, ConsumerConfig, ProducerConfig, AdminConfig):
        is_base = cls is ClientConfig
        shared = set() if is_base else _accepted(ClientConfig).keys()
        lines = [f"    {name}: {kind}\n" for name, kind in _accepted(cls).items() if name not in shared]
        base = "TypedDict" if is_base else "ClientKeywords"
        meaning = f'    """{(cls.__doc__ or "").splitlines()[0]}"""\n\n'
        head = f"class {cls.__name__.removesuffix('Config')}Keywords({base}, total=False):\n"
        parts.append(f"\n\n{head}{meaning}{''.join(lines)}")
    return "".join(parts)


def _accepted(cls: type[ClientConfig]) -> dict[str, str]:
    """Return the settings of a client by name, each with the type that is accepted for it."""
    hints = get_type_hints(cls)
    found = {each.name: _given_as(hints[each.name]) for each in fields(cls)}
    ignored = {name: "object" for name in cls.WITHOUT_EFFECT if "*" not in name}
    return dict(sorted({**ignored, **found}.items()))


def _given_as(hint: object) -> str:
    """Return the type of what a setting of this type is read from; None stands for its default."""
    kinds = (
        {each for each in get_args(hint) if each is not type(None)}
        if get_origin(hint) in (Union, UnionType)
        else {hint}
    )
    named = {
        frozenset(get_args(DeserializerChoice)): "DeserializerChoice",
        frozenset(get_args(SerializerChoice)): "SerializerChoice",
        frozenset(get_args(Schema)): "Schema",
        frozenset({str}): "str",
        frozenset({int}): "int | str",
        frozenset({bool}): "bool | str",
        frozenset({tuple[Address, ...]}): "str | Iterable[str]",
        frozenset({tuple[str, ...]}): "str | Iterable[str]",
    }
    name = named.get(frozenset(kinds))
    return "object" if name is None else f"{name} | None"


PARTS: Mapping[str, Callable[[], str]] = {
    "broker settings": lambda: settings_table(BrokerSettings, spell=dotted),
    "topic settings": topic_table,
    "client settings": lambda: settings_table(ClientConfig),
    "security settings": lambda: settings_table(SecuritySettings, spell=dotted),
    "consumer settings": lambda: settings_table(ConsumerConfig, ClientConfig),
    "producer settings": lambda: settings_table(ProducerConfig, ClientConfig),
    "registry settings": lambda: settings_table(RegistryWriterSettings),
    "admin settings": lambda: settings_table(AdminConfig, ClientConfig),
    "refused settings": refused_table,
    "load options": load_options_table,
    "load settings": load_settings_table,
    "value formats": formats_table,
    "assignors": assignors_table,
    "protocol": protocol_table,
    "file map": file_map,
    "source options": source_table,
    "source scenarios": scenarios_table,
    "broker metrics": broker_metrics_table,
    "group states": group_states,
    "member phases": member_phases,
}


def filled(text: str) -> str:
    """Return a page with its generated parts up to date."""
    return PART.sub(lambda part: f"{part['begin']}\n{PARTS[part['name']]()}\n{part['end']}", text)


def main(arguments: list[str]) -> int:
    """Write the files, or with ``--check`` only check them; return the exit code."""
    current = {page: filled(page.read_text()) for page in sorted(DOCS.glob("*.md"))}
    current[KEYWORDS] = keywords_module()
    stale = {file: text for file, text in current.items() if not file.exists() or file.read_text() != text}
    if arguments == ["--check"]:
        for file in stale:
            sys.stderr.write(f"{file.relative_to(DOCS.parent)} is out of date: run make docs\n")
        return 1 if stale else 0
    for file, text in stale.items():
        file.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
