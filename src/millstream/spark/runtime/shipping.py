"""Ships this package to Spark's workers where it is not installed."""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import millstream
from millstream.errors import MillstreamError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EPOCH = (1980, 1, 1, 0, 0, 0)
"""A fixed date, so that the same files give the same archive."""


def ship(spark: SparkSession) -> None:
    """Send this version of millstream to the workers of a session. Call it before ``register``.

    The session may be classic or Connect. millstream's dependencies (pyarrow, numpy, numba, google-crc32c)
    must be installed on the workers.
    """
    archive = str(package_archive())
    if _is_connect(spark):
        spark.addArtifacts(archive, pyfile=True)
    else:
        spark.sparkContext.addPyFile(archive)


def _is_connect(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


def package_archive(directory: Path | None = None) -> Path:
    """Write the package to a zip file that Python can import from."""
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
    """The file name of the archive, on the driver and on workers."""
    return f"millstream-{millstream.__version__}.zip"
