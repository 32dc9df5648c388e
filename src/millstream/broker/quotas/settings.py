"""The broker's settings for quotas."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.settings import PositiveInt, Settings, setting


@dataclass(frozen=True, kw_only=True)
class QuotaSettings(Settings):
    """Over which time rates are measured."""

    quota_window_num: PositiveInt = setting(
        11, "Rates of clients with quotas are measured over this many windows."
    )
    quota_window_size_seconds: PositiveInt = setting(1, "The length of one such window.")
    controller_quota_window_num: PositiveInt = setting(
        11, "Of controller_mutation_rate, as many windows may be used at once."
    )
    controller_quota_window_size_seconds: PositiveInt = setting(1, "The length of one of these windows.")
