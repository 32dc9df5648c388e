"""Which tests run on both brokers: all that reach a broker by ``bootstrap_servers`` alone."""

from __future__ import annotations

from typing import Final

import pytest

from tests.kafka import brokers

_THE_COMMAND: Final = "about the command itself, which starts anew for each line"

EMBEDDED_ONLY: Final[dict[str, str]] = {
    "test_cli_creating::test_a_tab_as_it_is_typed": _THE_COMMAND,
    "test_cli_creating::test_names_that_are_made_alike_are_no_slips": _THE_COMMAND,
    "test_cli_creating::test_standard_output_may_be_closed": _THE_COMMAND,
    "test_cli_creating::test_what_is_refused_makes_no_topic": _THE_COMMAND,
    "test_cli_names::test_load_with_a_misspelt_command": _THE_COMMAND,
    "test_cli_names::test_a_misspelt_state": _THE_COMMAND,
    "test_examples::test_counting_with_a_load": "three starts of Spark; loads have tests of their own",
}
"""Tests, or modules of tests, that need something only the embedded broker has, or take too long for two."""


_OTHER_CLIENTS: Final = "clients of others log in in tests of their own"

PLAINTEXT_ONLY: Final[dict[str, str]] = {
    "test_admin::test_a_group_with_members": _OTHER_CLIENTS,
    "test_mixed_groups": _OTHER_CLIENTS,
    "test_groups_sharing::test_the_first_member_leads_and_the_others_see_only_their_part": _OTHER_CLIENTS,
    "test_consumer_reading::test_without_a_group_nothing_of_a_group_is_touched": "reads frames on their way",
    "test_console": "the console in the test's process; a command gets its login by --command-config",
}
"""Tests, or modules of tests, that cannot run over TLS with a login."""

OVER_SASL_SSL: Final = frozenset(
    {
        "test_admin::test_create_describe_list_delete",
        "test_admin::test_reset_every_way",
        "test_admin::test_describe_cluster",
        "test_async_consumer::test_reading_and_committing",
        "test_commits_crash::test_auto_commit_at_close_repeats_nothing",
        "test_commits_modes::test_commit_covers_what_was_handed_out",
        "test_commits_modes::test_commit_async_tells_its_callback",
        "test_consumer_reading::test_compressed_records",
        "test_consumer_reading::test_every_field_of_a_record",
        "test_consumer_reading::test_records_by_partition",
        "test_exactly_once::test_overlap_in_sqlite",
        "test_groups_rebalances::test_a_member_joins",
        "test_groups_sharing::test_four_partitions_among_one_two_four_and_five_members",
        "test_groups_static::test_a_restart_within_the_session_causes_no_rebalance",
        "test_producer::test_a_new_topic_is_made_by_sending",
        "test_producer::test_every_codec_and_order_within_a_partition",
        "test_scan::test_committed_offsets_bound_it_and_the_group_stays_as_it_was",
    }
)
"""Tests, or modules of tests, that also run over TLS with a login; with ``--security SASL_SSL`` all do."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "bootstrap_servers" not in metafunc.fixturenames:
        return
    module = metafunc.module.__name__.rpartition(".")[2]
    names = {module, f"{module}::{metafunc.function.__name__}"}
    if names & EMBEDDED_ONLY.keys():
        return
    protocol: str | None = metafunc.config.getoption("--security")
    if protocol is not None and not names & PLAINTEXT_ONLY.keys():
        brokers.parametrize(metafunc, protocol)
    elif names & OVER_SASL_SSL:
        brokers.parametrize(metafunc, brokers.PLAINTEXT, brokers.SASL_SSL)
    else:
        brokers.parametrize(metafunc, brokers.PLAINTEXT)
