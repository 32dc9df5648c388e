"""A missing optional package names the extra that brings it; any other import error stays what it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.errors import MissingExtraError
from millstream.extras import require


def test_a_package_that_is_there() -> None:
    assert require("json.decoder", "nothing").__name__ == "json.decoder"


@pytest.mark.parametrize("module", ["absent_package", "absent_package.part"])
def test_a_missing_package(module: str) -> None:
    with pytest.raises(MissingExtraError, match=r"pip install 'millstream\[spark\]'") as caught:
        require(module, "spark")
    assert (caught.value.name, caught.value.extra) == (module, "spark")


def test_a_package_that_misses_something_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "half_there.py").write_text("import absent_dependency\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="absent_dependency") as caught:
        require("half_there", "spark")
    assert not isinstance(caught.value, MissingExtraError)
