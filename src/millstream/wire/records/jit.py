"""Compiling a loop from its source text with numba: macros, the compiler's cache, and loading on demand.

Helper functions that take arrays are slow in numba, even inlined ones: so repeated code is a macro in the
text. Importing this module is cheap; ``compile_loop`` imports numba.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, Generic, TypeVar

from millstream.cache import user_cache

K = TypeVar("K")
"""A set of compiled loops."""


def expand_macros(source: str, macros: Mapping[str, str]) -> str:
    """Replace each line that is a macro call by the macro's text, indented like the call.

    A macro is declared by its call: ``"COPY(DATA, SIZE)"`` is the key of a text in which DATA and SIZE occur.
    """
    declared = {name: (words, macros[call]) for call in macros for name, *words in [re.findall(r"\w+", call)]}

    def expanded(found: re.Match[str]) -> str:
        indent, name, arguments = found.groups()
        parameters, text = declared[name]
        for parameter, argument in zip(parameters, arguments.split(", "), strict=True):
            text = text.replace(parameter, argument)
        return "\n".join(indent + line for line in text.splitlines())

    return re.sub(rf"(?m)^( *)({'|'.join(declared)})\((.*)\)$", expanded, source)


def compile_loop(
    source: str, file: str, module: str, signature: Any, options: dict[str, Any], **names: Any
) -> Any:
    """Compile the function that ``source`` defines, for use in ``module``.

    ``file``: the file that holds the text; numba's cache is valid until it changes.
    ``options``: the options of ``numba.njit``. ``names``: what the function may use besides ``np``.
    Raises RuntimeError when numba is told not to compile.
    """
    import numba
    import numpy as np

    if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
        raise RuntimeError("NUMBA_DISABLE_JIT is set: the loops would be slower than plain Python")
    namespace: dict[str, Any] = {"np": np, "__name__": module, **names}
    exec(compile(source, lasting(file, source), "exec"), namespace)
    function = namespace[source[len("def ") : source.index("(")]]
    try:
        return numba.njit(signature, **options)(function)
    except Exception:  # noqa: BLE001 - no place for a cache, or a damaged one: compile for this process only
        return numba.njit(signature, **{**options, "cache": False})(function)


def lasting(file: str, source: str) -> str:
    """Return the file whose age decides whether numba's cache is valid: ``file``, if it exists.

    A package shipped as an archive, as Spark does, has another path in each run, and no cached code would be
    found again. Then it is a file in the user's cache directory, named after the text.
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
    except OSError:  # no writable home directory: then it is compiled each time
        return file
    return str(place)


class Loops(Generic[K]):
    """The compiled loops of a process: None at first, loaded when there is enough work for them.

    Importing numba takes half a second; compiling takes some seconds, once per installation. So work starts
    in plain Python. After ``volume_bytes``, ``load`` is called, which loads the compiled loops in the
    background and assigns ``kernels``. Each change is a single assignment: any thread may read it.
    """

    def __init__(self, volume_bytes: int) -> None:
        self.kernels: K | None = None
        self.seen_bytes = 0
        self.load: Callable[[], None] | None = None
        """Called when ``volume_bytes`` are reached; may be called more than once."""
        self._volume_bytes = volume_bytes

    def ready(self, volume: int = 0) -> K | None:
        """Return the compiled loops if they are loaded. ``volume``: the bytes to be processed next."""
        if self.kernels is None and volume:
            self.seen_bytes += volume
            if self.seen_bytes > self._volume_bytes and self.load is not None:
                self.load()
        return self.kernels
