"""How the text of a loop becomes compiled code: by numba, kept on the disk where that is possible.

Importing this module is cheap; ``compile_loop`` imports numba.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Generic, TypeVar

from millstream.cache import user_cache

K = TypeVar("K")
"""A set of compiled loops."""


def compile_loop(source: str, file: str, module: str, signature: Any, options: dict[str, Any]) -> Any:
    """Compile the function that ``source`` defines first, with these options of numba's.

    ``file`` is where the text stands: numba keeps compiled code for as long as that file does not change.
    """
    import numpy as np

    namespace: dict[str, Any] = {"np": np, "__name__": module}
    exec(compile(source, lasting(file, source), "exec"), namespace)
    return compile_function(namespace[source[len("def ") : source.index("(")]], signature, options)


def compile_function(function: Any, signature: Any, options: dict[str, Any]) -> Any:
    """Compile a function with these options of numba's; RuntimeError where it is told not to compile."""
    import numba

    if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
        raise RuntimeError("NUMBA_DISABLE_JIT is set: the loops would be slower than plain Python")
    try:
        return numba.njit(signature, **options)(function)
    except Exception:  # noqa: BLE001 - nowhere to keep it, or what was kept is damaged: only for this process
        return numba.njit(signature, **{**options, "cache": False})(function)


def lasting(file: str, source: str) -> str:
    """The file that numba is told the text stands in: ``file``, if there is such a file.

    A package that was shipped as an archive, as Spark does, lies elsewhere in each run, and nothing that was
    compiled would be found again. There a file named after the text stands for it, in the user's cache.
    """
    if os.path.exists(file):
        return file
    name = f"loop-{sha256(source.encode()).hexdigest()[:16]}.py"
    try:
        place = user_cache() / name
        if not place.exists():
            draft = place.with_suffix(f".{os.getpid()}")
            draft.write_text(source)
            draft.replace(place)
    except OSError:  # no home, or not one to write to: then it is compiled each time
        return file
    return str(place)


class Loops(Generic[K]):
    """Compiled loops that a process may have: none at first, and loaded when there is enough for them to do.

    Importing numba takes half a second, and compiling, once for each installation, a few. So work begins in
    plain Python; once there is volume, ``load`` is called, which brings the compiled loops in the background
    and assigns ``kernels``. Each change is a single assignment: any thread may look.
    """

    def __init__(self, volume_bytes: int) -> None:
        """``volume_bytes``: so much is done plainly before the compiled loops are worth loading."""
        self.kernels: K | None = None
        self.seen_bytes = 0
        self.load: Callable[[], None] | None = None
        """What to call when there is volume; it may be called more than once."""
        self._volume_bytes = volume_bytes

    def ready(self, volume: int = 0) -> K | None:
        """The compiled loops, if they are there. ``volume``: the bytes that are about to be worked on."""
        if self.kernels is None and volume:
            self.seen_bytes += volume
            if self.seen_bytes > self._volume_bytes and self.load is not None:
                self.load()
        return self.kernels
