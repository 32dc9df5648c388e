"""Generates the functions that encode messages; ``schema`` says what they guarantee.

A generated function looks like this (FetchRequest, abridged)::

    def encode(o0, buf, payloads):
        append = buf.append
        buf += pack_ii(o0.max_wait_ms, o0.min_bytes)
        v = o0.topics
        n = len(v)
        if n < 127: append(n + 1)
        else: buf += uvarint(n + 1)
        for o1 in v:
            ...

A value that its field cannot hold makes it raise whatever Python raises; ``faults`` then finds the field. The
generated code checks only what would otherwise be written wrongly in silence.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from millstream.errors import UnsupportedVersionError
from millstream.wire.fields import FIXED, LONGEST_STRING, Field, HasFields
from millstream.wire.source import Source


def write(message: type[HasFields], version: int, *, flexible: bool, lossless: bool = False) -> Source:
    """Generate the encoder of one version of a message.

    A ``lossless`` one refuses fields that are set, that the version lacks, and that are not ignorable.
    """
    source = Source(f"{message.__name__} v{version} encoder", **_RUNTIME)
    source.head = "def encode(o0, buf, payloads):"
    source.line("append = buf.append")
    _EncoderWriter(source, version, flexible, lossless).struct(message, "o0", 0)
    return source


class _EncoderWriter:
    """Writes statements that append values to ``buf``. ``depth`` numbers nested variables."""

    def __init__(self, source: Source, version: int, flexible: bool, lossless: bool) -> None:
        self.source = source
        self.version = version
        self.flexible = flexible
        self.lossless = lossless

    def struct(self, struct_type: type[HasFields], owner: str, depth: int) -> None:
        tagged = []
        run: list[Field] = []
        for field in struct_type.__fields__:
            if not field.present(self.version):
                self.absent(field, owner)
            elif field.tag is not None:
                tagged.append(field)
            elif field.kind in FIXED:
                run.append(field)
            else:
                self.fixed_run(run, owner)
                run = []
                self.value(field, f"{owner}.{field.name}", depth)
        self.fixed_run(run, owner)
        if self.flexible:
            self.tags(sorted(tagged, key=lambda field: field.tag or 0), owner, depth)

    def absent(self, field: Field, owner: str) -> None:
        """A request that would mean something else without this field is refused, as in Kafka."""
        if self.lossless and not field.ignorable:
            default = self.is_default(field, f"{owner}.{field.name}")
            self.source.line(f"if not {default}: raise unsupported_error({field.name!r}, {self.version})")

    def fixed_run(self, run: list[Field], owner: str) -> None:
        """Consecutive fields of fixed size: one pack."""
        if run:
            values = [f"{owner}.{field.name}" for field in run]
            for field, value in zip(run, values, strict=True):
                self.check_uuid(field, value)
            layout = "".join(FIXED[field.kind][0] for field in run)
            self.source.line(f"buf += {self.source.packer(layout, 'pack')}({', '.join(values)})")

    def check_uuid(self, field: Field, value: str) -> None:
        """``struct`` would cut or pad a uuid of the wrong length."""
        if field.kind == "uuid":
            self.source.line(f"if len({value}) != 16: raise ValueError({field.name!r})")

    def value(self, field: Field, value: str, depth: int) -> None:
        """One value of any type."""
        if field.kind in FIXED:
            self.check_uuid(field, value)
            self.source.line(f"buf += {self.source.packer(FIXED[field.kind][0], 'pack')}({value})")
        elif field.kind == "struct":
            self.nested(field, value, depth)
        else:
            self.sized(field, value, depth)

    def sized(self, field: Field, value: str, depth: int) -> None:
        """What begins with a length or a count: strings, bytes, records and arrays."""
        source = self.source
        source.line(f"v = {value}")
        if not field.null_allowed(self.version):
            self.present(field, depth)
            return
        null = b"\0" if self.flexible else b"\xff\xff" if field.kind == "string" else b"\xff\xff\xff\xff"
        source.line(f"if v is None: buf += {null!r}")
        with source.block("else:"):
            self.present(field, depth)

    def present(self, field: Field, depth: int) -> None:
        """What lies in ``v`` and is not null."""
        line = self.source.line
        if field.kind == "string":
            line("v = v.encode()")
        line("n = len(v)")
        self.length(field)
        if field.kind == "array":
            self.array(field, depth)
        elif field.kind == "records":
            line("if n: payloads.append((len(buf), v))")
        else:
            line("buf += v")

    def length(self, field: Field) -> None:
        line = self.source.line
        if self.flexible:
            line("if n < 127: append(n + 1)")
            line(f"else: buf += {'string_length' if field.kind == 'string' else 'uvarint'}(n + 1)")
        else:
            layout = "h" if field.kind == "string" else "i"
            line(f"buf += {self.source.packer(layout, 'pack')}(n)")

    def array(self, field: Field, depth: int) -> None:
        element = field.element
        assert element is not None, "an array has an element type"
        if element.kind in FIXED and element.kind != "uuid":
            layout = FIXED[element.kind][0]
            self.source.line(f"if n < 16: buf += {self.source.packers(layout, 'pack')}[n](*v)")
            self.source.line(f"else: buf += pack('>%d{layout}' % n, *v)")
            return
        item = f"o{depth + 1}"
        with self.source.block(f"for {item} in v:"):
            if element.struct_type is not None:
                self.struct(element.struct_type, item, depth + 1)
            else:
                self.value(element, item, depth + 1)

    def nested(self, field: Field, value: str, depth: int) -> None:
        source, item = self.source, f"o{depth + 1}"
        assert field.struct_type is not None, "a struct field has a type"
        source.line(f"{item} = {value}")
        if not field.null_allowed(self.version):
            self.struct(field.struct_type, item, depth + 1)
            return
        source.line(f"if {item} is None: append(255)")
        with source.block("else:"):
            source.line("append(1)")
            self.struct(field.struct_type, item, depth + 1)

    def tags(self, tagged: list[Field], owner: str, depth: int) -> None:
        """Tagged fields are written in the order of their tags, and only where they are not the default."""
        source = self.source
        if not tagged:
            source.line("append(0)")
            return
        assert all(field.kind != "records" for field in tagged), "a tagged field's size covers no payload"
        mark = f"mark{depth}"
        defaults = [self.is_default(field, f"{owner}.{field.name}") for field in tagged]
        source.line(f"if {' and '.join(defaults)}: append(0)")
        with source.block("else:"):
            source.line(f"append({' + '.join(f'(not {default})' for default in defaults)})")
            for field, default in zip(tagged, defaults, strict=True):
                with source.block(f"if not {default}:"):
                    source.line(f"append({field.tag})")
                    source.line(f"{mark} = len(buf)")
                    self.value(field, f"{owner}.{field.name}", depth)
                    source.line(f"buf[{mark}:{mark}] = uvarint(len(buf) - {mark})")

    def is_default(self, field: Field, value: str) -> str:
        """An expression that tells whether a field has its default. A struct that is None counts as that."""
        if field.struct_type is not None:
            return f"({value} is None or {value} == {self.source.constant(field.struct_type())})"
        if isinstance(field.default, list):
            return f"({value} is not None and not {value})"
        return f"({value} == {self.source.constant(field.default)})"


# ------------------------------------------------------------------- functions that the generated code calls


def uvarint(value: int) -> bytes:
    """The bytes of an unsigned varint."""
    out = bytearray()
    while value >= 128:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _string_length(value: int) -> bytes:
    if value > LONGEST_STRING + 1:
        raise ValueError("a string is too long")
    return uvarint(value)


def _unsupported_error(name: str, version: int) -> UnsupportedVersionError:
    return UnsupportedVersionError(
        f"the broker is too old for {name}: version {version} of this request cannot carry it. "
        f"Leave the setting out, or use a newer broker"
    )


_RUNTIME: Final[dict[str, Any]] = {
    "pack": struct.pack,
    "uvarint": uvarint,
    "string_length": _string_length,
    "unsupported_error": _unsupported_error,
}
