"""Brings the package itself to Spark's workers, where it is not installed."""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import millstream
from millstream.errors import MillstreamError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The same files give the same archive, whenever it is made."""


def ship(spark: SparkSession) -> None:
    """Send this version of millstream to the workers of a session, classic or Connect; before ``register``.

    What millstream needs (pyarrow, numpy, numba, google-crc32c) must be installed there, as Spark's own
    dependencies are.
    """
    archive = str(package_archive())
    if _is_connect(spark):
        spark.addArtifacts(archive, pyfile=True)
    else:
        spark.sparkContext.addPyFile(archive)


def _is_connect(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


def package_archive(directory: Path | None = None) -> Path:
    """Write the package into a zip file that Python can import from."""
    home = Path(millstream.__file__).parent
    files = sorted(path for path in home.rglob("*") if path.suffix in (".py", ".typed") and path.is_file())
    if not files:
        raise MillstreamError(f"the files of millstream are not at {home}: install it on the workers instead")
    place = directory or Path(tempfile.mkdtemp(prefix="millstream-"))
    archive = place / archive_name()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as written:
        for path in files:
            entry = zipfile.ZipInfo(path.relative_to(home.parent).as_posix(), _EPOCH)
            written.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
    return archive


def archive_name() -> str:
    """What the archive is called wherever it is."""
    return f"millstream-{millstream.__version__}.zip"


def restore(archive: str, options: dict[str, str]) -> Any:
    """Make a source of its pickle, also where Spark has brought the package but does not look for it.

    The process that plans streams looks for what was shipped in a directory ``streaming_job`` beside the one
    that it is in (Spark 4.3). This function is pickled as a whole, as it has to work before there is a
    millstream, so it uses nothing of this module.
    """
    import importlib.util
    import os
    import sys

    from pyspark import SparkFiles

    if importlib.util.find_spec("millstream") is None:
        above = os.path.dirname(SparkFiles.getRootDirectory())
        for directory, _, files in os.walk(above):
            if archive in files:
                sys.path.append(os.path.join(directory, archive))
                break
    from millstream.spark.source.source import MillstreamSource

    return MillstreamSource(options)


restore.__module__ = "__main__"  # cloudpickle then takes the function itself, and not its name
