"""CRC-32C of many batches in one compiled loop that holds no interpreter lock.

The processor's CRC instruction takes 8 bytes and has its result after three cycles, but a new one can start
in each cycle: so three pieces of the data are computed at once, and their results are combined by tables.
That is as fast as google-crc32c, without a Python call for each batch. On processors without the instruction
``compile_checksum_loop`` returns None, and google-crc32c is used.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from google_crc32c import extend

from millstream.wire.records.jit import compile_loop

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    ChecksumLoop = Callable[[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]], int]
    """Takes data, and the start, end and CRC of each batch; returns how many of the first are intact."""

_PIECE: Final = 512
"""Bytes of each of the three pieces."""
_ALL_ONES: Final = 0xFFFFFFFF

_SOURCE: Final = """\
def count_unharmed(data, starts, ends, crcs):
    ones = np.uint64(0xFFFFFFFF)
    byte = np.uint64(255)
    for batch in range(len(starts)):
        at, end = starts[batch], ends[batch]
        if at < 0 or end > len(data):
            return batch
        crc = ones
        while end - at >= 3 * PIECE:
            second = np.uint64(0)
            third = np.uint64(0)
            for place in range(at, at + PIECE, 8):
                crc = add_word(crc, word_at(data, place))
                second = add_word(second, word_at(data, place + PIECE))
                third = add_word(third, word_at(data, place + 2 * PIECE))
            for result in (second, third):
                crc = result ^ np.uint64(
                    shifts[0, crc & byte]
                    ^ shifts[1, (crc >> np.uint64(8)) & byte]
                    ^ shifts[2, (crc >> np.uint64(16)) & byte]
                    ^ shifts[3, crc >> np.uint64(24)]
                )
            at += 3 * PIECE
        while end - at >= 8:
            crc = add_word(crc, word_at(data, at))
            at += 8
        while at < end:
            crc = add_byte(crc, data[at])
            at += 1
        if crc ^ ones != np.uint64(crcs[batch]):
            return batch
    return len(starts)
"""


def compile_checksum_loop(options: dict[str, Any]) -> ChecksumLoop | None:
    """Compile the loop with these options of numba's; None where the processor lacks the instruction."""
    if not _has_instruction():
        return None
    from numba import types

    source = _SOURCE.replace("PIECE", str(_PIECE))
    longs = types.int64[::1]
    signature = (types.Array(types.uint8, 1, "C", readonly=True), longs, longs, longs)
    loop: ChecksumLoop = compile_loop(
        source, __file__, __name__, signature, options, shifts=_shifts(), **_instructions()
    )
    return loop


def _has_instruction() -> bool:
    """Whether compiled code may use it. A processor chosen in numba's configuration may lack it."""
    from llvmlite import binding  # type: ignore[import-untyped]
    from numba import config

    is_chosen = any(getattr(config, name, None) for name in ("CPU_NAME", "CPU_FEATURES"))
    if platform.machine() not in ("x86_64", "AMD64") or is_chosen:
        return False
    return bool(binding.get_host_cpu_features().get("sse4.2"))


def _shifts() -> NDArray[np.uint32]:
    """Return the tables that append a piece of zeros to a CRC: one per byte of it, to be combined by XOR."""
    import numpy as np

    zeros = bytes(_PIECE)
    return np.array(
        [
            [extend((value << shift) ^ _ALL_ONES, zeros) ^ _ALL_ONES for value in range(256)]
            for shift in (0, 8, 16, 24)
        ],
        np.uint32,
    )


def _instructions() -> dict[str, Any]:
    """Return the instruction for 8 bytes and for one byte, and an unaligned load of 8 bytes."""
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

    def call(name: str, *kinds: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            function = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
                builder.module, ir.FunctionType(kinds[0], kinds), f"llvm.x86.sse42.crc32.{name}"
            )
            return builder.call(function, arguments)

        return generate

    @intrinsic
    def add_word(typing: Any, crc: Any, word: Any) -> Any:
        return types.uint64(types.uint64, types.uint64), call("64.64", ir.IntType(64), ir.IntType(64))

    @intrinsic
    def add_byte(typing: Any, crc: Any, byte: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            narrow = builder.trunc(arguments[0], ir.IntType(32))
            step = call("32.8", ir.IntType(32), ir.IntType(8))
            return builder.zext(step(context, builder, signature, (narrow, arguments[1])), ir.IntType(64))

        return types.uint64(types.uint64, types.uint8), generate

    @intrinsic
    def word_at(typing: Any, data: Any, place: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            address = builder.gep(array.data, [arguments[1]])
            word = builder.load(builder.bitcast(address, ir.IntType(64).as_pointer()))
            word.align = 1
            return word

        return types.uint64(data, types.int64), generate

    return {"add_word": add_word, "add_byte": add_byte, "word_at": word_at}
