"""One file per group request (JoinGroup, SyncGroup, OffsetCommit, ...) and the rebalance between them."""
