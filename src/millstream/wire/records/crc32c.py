"""CRC-32C (Castagnoli), the checksum of record batches, in hardware through google-crc32c."""

from __future__ import annotations

from typing import TYPE_CHECKING

from google_crc32c import extend as _extend
from google_crc32c import value as _value

from millstream.wire.records.primitives import Buffer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def crc32c(data: Buffer) -> int:
    """Return the CRC-32C of the bytes. A view is copied first: the C function takes only ``bytes``."""
    return int(_value(data if type(data) is bytes else bytes(data)))


def array_crc32c(data: NDArray[np.uint8]) -> int:
    """Return the CRC-32C of an array, which is read without a copy."""
    return int(_value(data))


def extend_crc32c(crc: int, data: bytes) -> int:
    """Return the CRC-32C of the bytes that ``crc`` covers, followed by ``data``."""
    return int(_extend(crc, data))
