"""Makes ``df.write.format("millstream").save()`` append, as ``format("kafka")`` does.

Spark's default mode is ``errorifexists``. Spark's own sink takes it for ``append``, as a topic is never made
by a write; for a Python data source Spark refuses it before the source is asked. So the mode is replaced
where ``save`` is called, for this format and for this mode alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FORMAT: Final = "millstream"
_DEFAULTS: Final = ("error", "errorifexists", "default")


def accept_default_mode(spark: SparkSession) -> None:
    """Change the ``save`` of this kind of session's writers, once."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        from pyspark.sql.connect.readwriter import DataFrameWriter as Connect

        _replace_save(Connect, _connect_choice)
    else:
        from pyspark.sql.readwriter import DataFrameWriter as Classic

        _replace_save(Classic, _classic_choice)


def _classic_choice(writer: Any) -> tuple[str, str]:
    return writer._jwrite.source(), writer._jwrite.curmode().toString()


def _connect_choice(writer: Any) -> tuple[str, str]:
    return writer._write.source or "", writer._write.mode or "default"


def _replace_save(kind: Any, choice: Callable[[Any], tuple[str, str]]) -> None:
    save = kind.save
    if getattr(save, "appends_to_topics", False):
        return

    @wraps(save)
    def appending(
        self: Any, path: Any = None, format: Any = None, mode: Any = None, *more: Any, **options: Any
    ) -> Any:
        if format is not None:
            self.format(format)
        if mode is not None:
            self.mode(mode)
        source, chosen = choice(self)
        if source.lower() == _FORMAT and chosen.lower() in _DEFAULTS:
            self.mode("append")
        return save(self, path, None, None, *more, **options)

    appending.appends_to_topics = True  # type: ignore[attr-defined]
    kind.save = appending
