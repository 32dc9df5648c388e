"""The broker's options have two readers: the quick one, and the command line's. They must agree."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.cli import app
from millstream.cli.broker import serve
from millstream.cli.broker.arguments import LOG_LEVELS, BrokerOptions, read_plainly

VALUES = st.sampled_from(["x", "a=b", "127.0.0.1:0", "a b", "é", "", "-x", "--json", "info", *LOG_LEVELS])
OPTIONS = st.sampled_from(
    [
        "--data",
        "--listen",
        "--set",
        "--config",
        "--log-level",
        "--allow-remote",
        "--json",
        "--debug",
        "--help",
        "--dat",
        "-x",
    ]
)
ARGUMENTS = st.lists(
    st.one_of(
        st.builds(lambda option, value: [option, value], OPTIONS, VALUES),
        st.builds(lambda option, value: [f"{option}={value}"], OPTIONS, VALUES),
        st.builds(lambda option: [option], OPTIONS),
    ),
    max_size=4,
)


@settings(deadline=None)
@given(ARGUMENTS)
def test_the_quick_reader_says_what_the_parser_says(parts: list[list[str]]) -> None:
    arguments = [argument for part in parts for argument in part]
    quick = read_plainly(arguments)
    if quick is None:
        return
    orders: list[BrokerOptions] = []

    def record(order: BrokerOptions) -> int:
        orders.append(order)
        return 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serve, "serve", record)
        assert app.run(["broker", *arguments]) == 0
    assert orders == [quick]


def test_the_quick_reader_knows_every_option() -> None:
    arguments = [
        "--data",
        "d",
        "--listen=h:1",
        "--config",
        "c",
        "--set",
        "a=1",
        "--set=b=2=3",
        "--allow-remote",
        "--json",
        "--debug",
    ]
    assert read_plainly([*arguments, "--log-level", "DEBUG"]) == BrokerOptions(
        data="d",
        listen="h:1",
        config="c",
        settings=("a=1", "b=2=3"),
        allow_remote=True,
        log_level="DEBUG",
        as_json=True,
        debug=True,
    )
    assert read_plainly([]) == BrokerOptions()


@pytest.mark.parametrize(
    "arguments", [["--help"], ["-h"], ["x"], ["--data"], ["--data", "--json"], ["--json=1"]]
)
def test_what_needs_a_closer_look_is_left_to_the_parser(arguments: list[str]) -> None:
    assert read_plainly(arguments) is None
