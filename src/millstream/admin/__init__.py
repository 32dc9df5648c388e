"""The admin client: ``Admin``, and the values it takes and returns."""

from __future__ import annotations

from millstream.admin.admin import Admin
from millstream.admin.values import (
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    CreatedTopic,
    Features,
    GroupDescription,
    GroupListing,
    GroupMember,
    LogDirDescription,
    NewTopic,
    OffsetReset,
    PartitionLag,
    ProducerState,
    QuorumDescription,
    QuorumReplica,
    QuotaEntity,
    ReplicaSize,
    TopicDescription,
)
from millstream.security.acls import (
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

__all__ = [
    "Acl",
    "AclFilter",
    "Admin",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigResource",
    "CreatedTopic",
    "Features",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "LogDirDescription",
    "NewTopic",
    "OffsetReset",
    "Operation",
    "PartitionLag",
    "PatternType",
    "Permission",
    "ProducerState",
    "QuorumDescription",
    "QuorumReplica",
    "QuotaEntity",
    "ReplicaSize",
    "ResourceType",
    "TopicDescription",
]
