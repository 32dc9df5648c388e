"""Generates the functions that decode messages; ``schema`` says what they guarantee.

A generated function looks like this (FetchRequest, abridged)::

    def decode(buf, pos, end, left):
        o0 = new(FetchRequest)
        o0.max_wait_ms, o0.min_bytes, = unpack_from_ii(buf, pos)
        pos += 8
        n = buf[pos] - 1
        pos += 1
        if n > 126: n, pos = long_length(buf, pos)
        if n >= 0:
            if n * 4 > end - pos or n > left: raise count_error('topics', n)
            left -= n
            o0.topics = list0 = []
            for _ in range(n):
                o1 = new(FetchTopic)
                ...
                list0.append(o1)
        else:
            raise length_error('topics', n)
        return o0, pos

Reading past the end of the frame raises IndexError or struct.error, which the caller translates. The
generated code checks only what would otherwise go unnoticed, such as a slice that is cut short.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from millstream.errors import CorruptMessage
from millstream.wire.fields import FIXED, LONGEST_STRING, Field, HasFields
from millstream.wire.source import Source

_SLICES: Final = {
    # As in Kafka, text that is not UTF-8 does not refuse a message: the code that uses the text checks it.
    "string": "buf[pos:stop].tobytes().decode('utf-8', 'replace')",
    "bytes": "buf[pos:stop].tobytes()",
    "records": "buf[pos:stop]",
}


def write(message: type[HasFields], version: int, *, flexible: bool) -> Source:
    """Generate the decoder of one version of a message."""
    source = Source(f"{message.__name__} v{version} decoder", **_RUNTIME)
    source.head = "def decode(buf, pos, end, left):"
    _DecoderWriter(source, version, flexible).struct(message, "o0", 0)
    source.line("return o0, pos")
    return source


def minimum_size(field: Field, version: int, flexible: bool) -> int:
    """Return the fewest bytes that a value of this field can take; claimed counts are checked against it."""
    if field.kind in FIXED:
        return FIXED[field.kind][1]
    if field.kind == "struct" and not field.null_allowed(version):
        assert field.struct_type is not None, "a struct field has a type"
        inner = [f for f in field.struct_type.__fields__ if f.present(version) and f.tag is None]
        return max(1, sum(minimum_size(f, version, flexible) for f in inner) + flexible)
    if flexible or field.kind == "struct":
        return 1  # a compact length, or the mark of a null struct
    return 2 if field.kind == "string" else 4


class _DecoderWriter:
    """Writes statements that read values at ``pos`` and advance it. ``depth`` numbers nested variables."""

    def __init__(self, source: Source, version: int, flexible: bool) -> None:
        self.source = source
        self.version = version
        self.flexible = flexible

    def struct(self, struct_type: type[HasFields], target: str, depth: int) -> None:
        line = self.source.line
        line(f"{target} = new({self.source.named(struct_type)})")
        tagged = []
        run: list[Field] = []
        for field in struct_type.__fields__:
            if field.tag is not None or not field.present(self.version):
                default = "[]" if isinstance(field.default, list) else self.source.constant(field.default)
                line(f"{target}.{field.name} = {default}")
                if field.present(self.version):
                    tagged.append(field)
            elif field.kind in FIXED:
                run.append(field)
            else:
                self.fixed_run(run, target)
                run = []
                self.value(field, f"{target}.{field.name}", depth)
        self.fixed_run(run, target)
        if self.flexible:
            self.tags(tagged, target, depth)

    def fixed_run(self, run: list[Field], target: str) -> None:
        """Consecutive fields of fixed size: one unpack."""
        if run:
            layout = "".join(FIXED[field.kind][0] for field in run)
            targets = ", ".join(f"{target}.{field.name}" for field in run)
            self.source.line(f"{targets}, = {self.source.packer(layout, 'unpack_from')}(buf, pos)")
            self.source.line(f"pos += {sum(FIXED[field.kind][1] for field in run)}")

    def value(self, field: Field, target: str, depth: int) -> None:
        """One value of any type into ``target``."""
        if field.kind in FIXED:
            layout, size = FIXED[field.kind]
            self.source.line(f"{target}, = {self.source.packer(layout, 'unpack_from')}(buf, pos)")
            self.source.line(f"pos += {size}")
        elif field.kind == "struct":
            self.nested(field, target, depth)
        else:
            self.sized(field, target, depth)

    def sized(self, field: Field, target: str, depth: int) -> None:
        """What begins with a length or a count: strings, bytes, records and arrays."""
        source, nullable = self.source, field.null_allowed(self.version)
        self.length(field)
        with source.block("if n >= 0:"):
            if field.kind == "array":
                self.array(field, target, depth)
            else:
                source.line("stop = pos + n")
                source.line(f"if stop > end: raise short_error({field.name!r}, n, end - pos)")
                source.line(f"{target} = {_SLICES[field.kind]}")
                source.line("pos = stop")
        if nullable and self.flexible:
            source.line(f"else: {target} = None")
        else:
            if nullable:
                source.line(f"elif n == -1: {target} = None")
            source.line(f"else: raise length_error({field.name!r}, n)")

    def length(self, field: Field) -> None:
        """A length or count into ``n``: -1 stands for null in both encodings."""
        line = self.source.line
        if self.flexible:
            line("n = buf[pos] - 1")
            line("pos += 1")
            long = "long_string_length" if field.kind == "string" else "long_length"
            line(f"if n > 126: n, pos = {long}(buf, pos)")
        else:
            layout, size = ("h", 2) if field.kind == "string" else ("i", 4)
            line(f"n, = {self.source.packer(layout, 'unpack_from')}(buf, pos)")
            line(f"pos += {size}")

    def array(self, field: Field, target: str, depth: int) -> None:
        line, element = self.source.line, field.element
        assert element is not None, "an array has an element type"
        least = minimum_size(element, self.version, self.flexible)
        line(f"if n * {least} > end - pos or n > left: raise count_error({field.name!r}, n)")
        line("left -= n")
        if element.kind in FIXED and element.kind != "uuid":
            layout, size = FIXED[element.kind]
            few = self.source.packers(layout, "unpack_from")
            line(f"if n < 16: {target} = [*{few}[n](buf, pos)]")
            line(f"else: {target} = [*unpack_from('>%d{layout}' % n, buf, pos)]")
            line(f"pos += {size} * n")
            return
        line(f"{target} = list{depth} = []")
        with self.source.block("for _ in range(n):"):
            if element.struct_type is not None:
                self.struct(element.struct_type, f"o{depth + 1}", depth + 1)
            else:
                self.value(element, f"o{depth + 1}", depth + 1)
            line(f"list{depth}.append(o{depth + 1})")

    def nested(self, field: Field, target: str, depth: int) -> None:
        source, item = self.source, f"o{depth + 1}"
        assert field.struct_type is not None, "a struct field has a type"
        assert field.tag is None or field.nullable is None, "a tagged struct is left out instead of null"
        if field.null_allowed(self.version):
            source.line(f"n, = {source.packer('b', 'unpack_from')}(buf, pos)")
            source.line("pos += 1")
            source.line(f"if n < 0: {target} = None")
            with source.block("else:"):
                self.struct(field.struct_type, item, depth + 1)
                source.line(f"{target} = {item}")
        else:
            self.struct(field.struct_type, item, depth + 1)
            source.line(f"{target} = {item}")

    def tags(self, tagged: list[Field], target: str, depth: int) -> None:
        """The tagged fields at a flexible struct's end; undeclared tags are skipped."""
        source = self.source
        source.line("if not buf[pos]: pos += 1")
        if not tagged:
            source.line("else: pos, left = skip_tags(buf, pos, end, left)")
            return
        tag, stop = f"tag{depth}", f"tag_end{depth}"
        with source.block("else:"):
            source.line("n, pos = read_uvarint(buf, pos)")
            source.line("if n > left: raise count_error('the tagged fields', n)")
            source.line("left -= n")
            with source.block("for _ in range(n):"):
                source.line(f"{tag}, pos, {stop} = read_tag(buf, pos, end)")
                word = "if"
                for field in tagged:
                    with source.block(f"{word} {tag} == {field.tag}:"):
                        self.value(field, f"{target}.{field.name}", depth)
                    word = "elif"
                source.line(f"else: pos = {stop}")
                source.line(f"if pos != {stop}: raise tag_error({tag}, {stop} - pos)")


# ------------------------------------------------------------------- functions that the generated code calls


def read_uvarint(buf: memoryview, pos: int) -> tuple[int, int]:
    """An unsigned varint of at most five bytes, as lengths, counts and tags are."""
    value = shift = 0
    while True:
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos
        shift += 7
        if shift > 28:
            raise CorruptMessage("a varint is longer than five bytes")


def read_tag(buf: memoryview, pos: int, end: int) -> tuple[int, int, int]:
    """The number of a tagged field, and where its content begins and ends."""
    tag, pos = read_uvarint(buf, pos)
    size, pos = read_uvarint(buf, pos)
    if pos + size > end:
        raise _short_error(f"tagged field {tag}", size, end - pos)
    return tag, pos, pos + size


def skip_tags(buf: memoryview, pos: int, end: int, left: int) -> tuple[int, int]:
    """Skip tagged fields; return the position after them, and how many elements are still allowed."""
    count, pos = read_uvarint(buf, pos)
    if count > left:
        raise _count_error("the tagged fields", count)
    for _ in range(count):
        _, _, pos = read_tag(buf, pos, end)
    return pos, left - count


def _long_length(buf: memoryview, pos: int) -> tuple[int, int]:
    """A compact length of more than one byte, the first of which lies before ``pos``."""
    value, pos = read_uvarint(buf, pos - 1)
    return value - 1, pos


def _long_string_length(buf: memoryview, pos: int) -> tuple[int, int]:
    length, pos = _long_length(buf, pos)
    if length > LONGEST_STRING:
        raise CorruptMessage(f"a string claims {length} bytes: {LONGEST_STRING} are allowed")
    return length, pos


def _length_error(name: str, length: int) -> CorruptMessage:
    if length == -1:
        return CorruptMessage(f"{name} is null where this version has no null")
    return CorruptMessage(f"{name} has the negative length {length}")


def _short_error(name: str, claimed: int, left: int) -> CorruptMessage:
    return CorruptMessage(f"{name} claims {claimed} bytes, but {left} are left")


def _count_error(name: str, count: int) -> CorruptMessage:
    return CorruptMessage(
        f"{name} claims {count} elements: the message has no room for them, or may not have that many"
    )


def _tag_error(tag: int, left: int) -> CorruptMessage:
    return CorruptMessage(f"tagged field {tag} ends {left} bytes before the end it claims")


_RUNTIME: Final[dict[str, Any]] = {
    "new": object.__new__,
    "unpack_from": struct.unpack_from,
    "read_uvarint": read_uvarint,
    "read_tag": read_tag,
    "skip_tags": skip_tags,
    "long_length": _long_length,
    "long_string_length": _long_string_length,
    "length_error": _length_error,
    "short_error": _short_error,
    "count_error": _count_error,
    "tag_error": _tag_error,
}
