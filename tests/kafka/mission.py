"""What the consumer has to do, row by row, and the tests that show it on the embedded broker and on Kafka."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Row:
    """One thing that must work. ``tests`` are ``module::function`` of tests/system and tests/spark."""

    number: int
    what: str
    tests: tuple[str, ...]


def _row(number: int, what: str, *tests: str) -> Row:
    return Row(number, what, tests)


_SHARING, _REBALANCES = "test_groups_sharing", "test_groups_rebalances"
_READING, _POSITIONS, _LIFE = "test_consumer_reading", "test_consumer_positions", "test_consumer_life"
_MODES, _CRASH, _LISTENER = "test_commits_modes", "test_commits_crash", "test_groups_listener"
_STATIC, _EXAMPLES = "test_groups_static", "test_examples"

ROWS: Final = (
    _row(
        1,
        "each partition goes to exactly one member",
        f"{_SHARING}::test_four_partitions_among_one_two_four_and_five_members",
    ),
    _row(2, "independent groups each get every record", f"{_SHARING}::test_each_group_gets_every_record"),
    _row(
        3,
        "rebalance on join, leave, crash, new partitions, new topics",
        f"{_REBALANCES}::test_a_member_joins",
        f"{_REBALANCES}::test_a_member_leaves_cleanly_and_the_others_go_on_at_once",
        f"{_REBALANCES}::test_a_member_is_killed_and_the_others_go_on_after_its_session",
        f"{_REBALANCES}::test_partitions_are_added",
        f"{_REBALANCES}::test_a_new_topic_matches_the_pattern",
    ),
    _row(
        4,
        "heartbeats from a thread of their own",
        f"{_REBALANCES}::test_a_slow_poll_loop_keeps_its_partitions",
        f"{_REBALANCES}::test_a_stuck_member_loses_its_partitions_and_comes_back",
    ),
    _row(
        5,
        "the first member leads; each sees only its own part",
        f"{_SHARING}::test_the_first_member_leads_and_the_others_see_only_their_part",
    ),
    _row(
        6,
        "assignors: range, roundrobin, sticky, cooperative-sticky, your own",
        f"{_SHARING}::test_range_as_in_the_documents",
        f"{_SHARING}::test_roundrobin_as_in_the_documents",
        f"{_SHARING}::test_an_assignor_of_ones_own",
        "test_mixed_groups::test_joining_and_leaving",
    ),
    _row(7, "a consumer from its settings", f"{_READING}::test_the_example_of_the_documents"),
    _row(
        8,
        "subscribe to a list or a pattern",
        f"{_SHARING}::test_members_with_different_subscriptions",
        f"{_REBALANCES}::test_a_pattern_needs_the_whole_name_and_leaves_internal_topics_out",
    ),
    _row(
        9,
        "poll: records with all their fields",
        f"{_READING}::test_every_field_of_a_record",
        f"{_READING}::test_max_poll_records",
    ),
    _row(
        10,
        "one consumer per thread",
        "test_consumer_misuse::test_a_second_thread_is_refused_whatever_it_calls",
    ),
    _row(
        11,
        "limits of a fetch",
        f"{_READING}::test_fetch_min_bytes_waits_until_there_is_enough",
        f"{_READING}::test_fetch_max_wait_ms_ends_the_wait",
        f"{_READING}::test_fetch_max_bytes",
        f"{_READING}::test_max_partition_fetch_bytes",
        f"{_READING}::test_a_record_larger_than_all_limits_is_delivered",
        f"{_READING}::test_socket_buffers",
    ),
    _row(
        12,
        "auto.offset.reset",
        f"{_POSITIONS}::test_without_a_commit",
        f"{_POSITIONS}::test_a_commit_out_of_range",
        f"{_POSITIONS}::test_none_raises_and_a_seek_goes_on",
    ),
    _row(
        13,
        "offsets live in `__consumer_offsets`",
        f"{_CRASH}::test_offsets_can_be_read_in_their_topic",
        f"{_CRASH}::test_a_sync_commit_after_processing_repeats_what_came_after_it",
    ),
    _row(
        14,
        "auto commit",
        f"{_MODES}::test_auto_commit_at_its_interval_inside_poll",
        f"{_CRASH}::test_duplicates_of_auto_commit_are_bounded_by_its_interval",
    ),
    _row(15, "commit, sync", f"{_MODES}::test_commit_covers_what_was_handed_out"),
    _row(
        16,
        "commit, async",
        f"{_MODES}::test_commit_async_tells_its_callback",
        f"{_MODES}::test_commits_are_stored_in_the_order_they_were_made",
    ),
    _row(
        17,
        "async while running, sync at close",
        f"{_MODES}::test_async_while_running_and_sync_at_close",
    ),
    _row(
        18,
        "commit specific offsets",
        f"{_MODES}::test_specific_offsets_in_the_middle_of_a_batch",
    ),
    _row(
        19,
        "the rebalance listener",
        f"{_LISTENER}::test_what_on_revoked_commits_is_where_the_next_owner_resumes",
        f"{_LISTENER}::test_on_assigned_seeks",
    ),
    _row(
        20,
        "consume from specific offsets; offsets in a database",
        f"{_POSITIONS}::test_seek_to_beginning_and_end",
        f"{_POSITIONS}::test_by_time",
        "test_exactly_once::test_sqlite",
        "test_exactly_once::test_postgresql",
    ),
    _row(
        21,
        "a clean exit",
        f"{_LIFE}::test_wakeup_from_another_thread_ends_poll",
        f"{_LIFE}::test_close_leaves_at_once_and_commits_what_was_handed_out",
        "test_consumer_leaving::test_closing_while_the_group_waits_for_another_member",
    ),
    _row(
        22,
        "deserializers",
        "test_consumer_deserializers::test_by_name_or_callable",
        "test_consumer_deserializers::test_bad_bytes_in_the_middle_of_a_batch",
    ),
    _row(
        23,
        "a consumer without a group",
        f"{_READING}::test_partitions_for_and_topics",
        f"{_READING}::test_without_a_group_nothing_of_a_group_is_touched",
    ),
    _row(
        24,
        "long poll",
        f"{_LIFE}::test_waiting_costs_next_to_nothing",
        f"{_LIFE}::test_a_new_record_arrives_within_milliseconds",
    ),
    _row(25, "aggressive batching", f"{_READING}::test_all_that_is_there_comes_at_once"),
    _row(
        26,
        "rewind and replay",
        f"{_POSITIONS}::test_rewind_and_replay_at_will",
        f"{_POSITIONS}::test_a_group_moved_by_command_reads_from_there",
        "test_cli_consume::test_reset_moves_a_group",
    ),
    _row(
        27,
        "offline loads: one task per partition, failed tasks run again with no duplicates",
        "test_both_brokers::test_failed_tasks_run_again_and_double_nothing",
    ),
    _row(
        28,
        "static membership",
        f"{_STATIC}::test_a_restart_within_the_session_causes_no_rebalance",
        f"{_STATIC}::test_a_second_member_with_the_same_id_fences_the_first",
    ),
    _row(
        29,
        "the pipeline: read a topic, validate each message, write results to a store",
        "test_both_brokers::test_messages_are_validated_and_the_bad_ones_kept",
        "test_both_brokers::test_the_command_loads_into_postgresql",
    ),
    _row(30, "customers per country", f"{_EXAMPLES}::test_counting_customers"),
)
"""27 and 29 are loads on Spark: see tests/spark."""
