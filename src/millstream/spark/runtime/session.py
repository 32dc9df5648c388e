"""Starts Spark sessions that need no more than ``pip install 'millstream[spark]'``: Java comes with it.

The command line and the demo use ``session`` and ``load_session``. A program that creates its own session
calls ``ensure_java`` before, if Java may be missing.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, cast

from millstream.errors import MillstreamError
from millstream.extras import require
from millstream.spark.runtime.java import quiet_java, quiet_logging
from millstream.spark.runtime.launch import ended_with_program, java_start
from millstream.spark.runtime.prestart import ADDRESS_VARIABLE, PrestartedDaemon
from millstream.spark.runtime.shipping import ship

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DEFAULTS: Final = {
    "spark.app.name": "millstream",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # The only limit on batches of lists and structs from Java to Python.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
}
_DAEMON: Final = "spark.python.daemon.module"
_LOCAL_DEFAULTS: Final = {
    # On a cluster the module may be missing: workers find a shipped package, their parent process does not.
    _DAEMON: "millstream.spark.daemon",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Spark's default of 200 is for clusters: on one machine a small stream would run mostly empty tasks.
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
}

_EXECUTOR_ENVIRONMENT: Final = "spark.executorEnv."
_OTHER_SPARK: Final = {"SPARK_HOME", "PYSPARK_GATEWAY_PORT"}
"""Variables that may select another PySpark than ours, or a Java that runs already."""

_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_QUICK_JAVA: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Half of the CPU time of a start goes into optimizing code that runs a few times."""


def session(master: str = "local[*]", **conf: object) -> SparkSession:
    """A Spark session with quiet defaults, and the format ``millstream`` registered.

    ``conf`` are Spark's settings under their own names: ``session(**{"spark.driver.memory": "2g"})``. To a
    cluster or a Connect server (``sc://host:15002``) this version of millstream is shipped, see ``ship``.
    """
    spark = _session(master, conf)
    # Imported now, as the start of Java takes longest and must not wait for it.
    from millstream.spark.source.source import register

    register(spark)
    return spark


def load_session(master: str = "local[*]", *, queries: bool = True, **conf: object) -> SparkSession:
    """A session for a load, which starts sooner: without the format, as Spark would look for others, too.

    Without ``queries`` all work is done in Python. Java then starts with options for a quick start, unless
    ``conf`` has Java options, which may conflict with them, and only Spark's context is started at first.
    """
    if queries or master.startswith("sc://"):
        return _session(master, conf)
    java_options = () if _JAVA_OPTIONS in conf else _QUICK_JAVA
    return cast("SparkSession", _SessionOnDemand(master, _settings(master, conf, java_options)))


class _SessionOnDemand:
    """Spark's context, and the session around it as soon as any other attribute is used.

    A job in Python needs the context alone. The session takes Java longer to start than the context.
    """

    def __init__(self, master: str, settings: Mapping[str, str]) -> None:
        self._session: Any = None
        spark = require("pyspark", "spark")
        conf = spark.SparkConf(loadDefaults=False).setMaster(master)
        conf.setAll(list(settings.items()))
        threading.Thread(target=_import_early, name="millstream-load-imports", daemon=True).start()
        self._daemon = None if spark.SparkContext._gateway else _prestart_daemon(master, settings)
        with quiet_java(), _daemon_address(self._daemon), java_start(), _start_explained():
            self.sparkContext = spark.SparkContext.getOrCreate(conf)
        if not master.startswith("local"):
            ship(cast("SparkSession", self))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python's own lookups must not start a session
            raise AttributeError(name)
        if self._session is None:
            self._session = require("pyspark.sql", "spark").SparkSession.builder.getOrCreate()
        return getattr(self._session, name)

    def stop(self) -> None:
        (self._session or self.sparkContext).stop()
        if self._daemon is not None:
            self._daemon.close()


def _import_early() -> None:
    """Import, while Java starts, what PySpark imports at its first call to it: test tools, and pandas."""
    with suppress(Exception):  # that call raises it again
        import_module("pyspark.testing.utils")


def _prestart_daemon(master: str, settings: Mapping[str, str]) -> PrestartedDaemon | None:
    """Start the workers' parent process, if Java would start the same."""
    if not re.fullmatch(r"local(\[.*\])?", master) or settings.get(_DAEMON) != _LOCAL_DEFAULTS[_DAEMON]:
        return None
    if settings.get("spark.python.use.daemon", "true").lower() != "true":
        return None
    if _OTHER_SPARK & os.environ.keys() or f"{_EXECUTOR_ENVIRONMENT}PYTHONPATH" in settings:
        return None
    try:
        return PrestartedDaemon(os.environ["PYSPARK_PYTHON"], _added_by_java(settings))
    except OSError:  # for example, the path of the temporary directory is too long for a socket
        return None


def _added_by_java(settings: Mapping[str, str]) -> dict[str, str]:
    """What Java adds to the driver's environment for workers, without Spark's own variables."""
    return {
        "OMP_NUM_THREADS": settings.get("spark.task.cpus", "1"),
        **{
            name.removeprefix(_EXECUTOR_ENVIRONMENT): value
            for name, value in settings.items()
            if name.startswith(_EXECUTOR_ENVIRONMENT)
        },
        "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0"),
        "PYTHONUNBUFFERED": "YES",
    }


@contextmanager
def _daemon_address(daemon: PrestartedDaemon | None) -> Iterator[None]:
    """Pass the daemon's address to Java in the environment; kill the daemon if Java does not start."""
    if daemon is None:
        yield
        return
    os.environ[ADDRESS_VARIABLE] = daemon.address
    try:
        with ended_with_program(daemon.kill):
            yield
    except BaseException:
        daemon.kill()
        raise
    finally:
        del os.environ[ADDRESS_VARIABLE]


@contextmanager
def _start_explained() -> Iterator[None]:
    """Raise MillstreamError with the reason if Spark does not start. If Java itself ends, it prints why."""
    try:
        yield
    except Exception as error:
        thrown = getattr(error, "java_exception", None)
        reason = str(error) if thrown is None else str(thrown.getMessage())
        raise MillstreamError(f"Spark does not start, check its master and settings: {reason}") from error


def _session(master: str, conf: Mapping[str, object]) -> SparkSession:
    sql = require("pyspark.sql", "spark")
    if master.startswith("sc://"):
        spark: SparkSession = sql.SparkSession.builder.remote(master).config(map=dict(conf)).getOrCreate()
    else:
        builder = sql.SparkSession.builder.master(master).config(map=_settings(master, conf))
        with quiet_java(), java_start(), _start_explained():
            spark = builder.getOrCreate()
    if not master.startswith("local"):
        ship(spark)
    return spark


def _settings(master: str, conf: Mapping[str, object], java_options: Sequence[str] = ()) -> dict[str, str]:
    """Defaults, overridden by ``conf``. Workers run the driver's Python unless PYSPARK_PYTHON is set."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    is_local = master.startswith("local")
    options = [quiet_logging(), *(java_options if is_local else ()), str(conf.get(_JAVA_OPTIONS, ""))]
    settings = {
        **_DEFAULTS,
        **(_LOCAL_DEFAULTS if is_local else {}),
        **conf,
        _JAVA_OPTIONS: " ".join(options),
    }
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in settings.items()
    }
