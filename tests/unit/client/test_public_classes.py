"""Public classes show what users need, and nothing else."""

from __future__ import annotations

import inspect

import pytest

from millstream import Admin, Producer

ADMIN = """
    create_topic create_topics delete_topics create_partitions add_partitions list_topics describe_topic
    describe_topics delete_records
    topic_configs broker_configs alter_configs alter_broker_configs list_config_resources
    list_groups describe_group describe_groups delete_groups group_offsets delete_group_offsets reset_offsets
    remove_members
    list_offsets describe_cluster describe_log_dirs describe_producers elect_leaders describe_features
    describe_quorum
    create_acls describe_acls delete_acls list_users set_password describe_client_quotas alter_client_quotas
    metrics close
"""
PRODUCER = "send send_arrow flush close partitions_for metrics"


@pytest.mark.parametrize(("public", "names"), [(Admin, ADMIN), (Producer, PRODUCER)])
def test_the_public_methods_are_all_in_one_class(public: type, names: str) -> None:
    assert public.__bases__ == (object,)
    assert {name for name in vars(public) if not name.startswith("_")} == set(names.split())


@pytest.mark.parametrize("public", [Admin, Producer])
def test_every_public_method_has_a_docstring(public: type) -> None:
    methods = {name: found for name, found in vars(public).items() if not name.startswith("_")}
    assert [name for name, found in methods.items() if not inspect.getdoc(found)] == []


@pytest.mark.parametrize("public", [Admin, Producer])
def test_instances_have_no_public_attributes(public: type) -> None:
    with public(bootstrap_servers="localhost:1") as client:
        assert [name for name in vars(client) if not name.startswith("_")] == []
