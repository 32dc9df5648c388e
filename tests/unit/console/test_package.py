"""What is installed: a wheel without its templates would be an empty house."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[3]
CONSOLE = ROOT / "src" / "millstream" / "console" / "web"


def test_the_wheel_holds_templates_and_static_files(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    files = [path for folder in ("templates", "static") for path in (CONSOLE / folder).iterdir()]
    assert len(files) >= 7
    for path in files:
        assert f"millstream/console/web/{path.parent.name}/{path.name}" in names
    assert "pyspark_millstream/__init__.py" in names, "Spark finds the source by this"
