"""Measures clients with quotas, and keeps the quotas in a file of the data directory.

The file is replaced as a whole, and a change is durable before it is in force. A client over its quota gets
its answer at once, with the time that it must pause; its connection is not read for so long (KIP-219).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from millstream.broker.log.documents import parse_document
from millstream.broker.log.files import Files
from millstream.broker.quotas.rates import TokenBucket, WindowedRate
from millstream.broker.quotas.settings import QuotaSettings
from millstream.broker.quotas.table import (
    ClientQuota,
    QuotaEntity,
    QuotaKind,
    find_address_quota,
    find_quota,
    problem_with,
    problem_with_entity,
    problem_with_quotas,
)
from millstream.broker.request_context import RequestContext
from millstream.errors import ErrorCode, for_code
from millstream.wire.messages.fetch import FetchResponse
from millstream.wire.messages.produce import PRODUCE
from millstream.wire.messages.sasl import SASL_AUTHENTICATE, SASL_HANDSHAKE
from millstream.wire.schema import Response

_FORMAT: Final = 1
_MANY_RATES: Final = 10_000
"""Client ids are what clients say: beyond so many, the rates of idle ones are dropped."""
_OF_LOGIN: Final = (SASL_HANDSHAKE, SASL_AUTHENTICATE)


class ClientQuotas:
    """The quotas of one broker, in force. ``open`` reads them."""

    def __init__(
        self, settings: QuotaSettings, path: Path, files: Files, clock_ms: Callable[[], int]
    ) -> None:
        self._settings = settings
        self._path = path
        self._files = files
        self._clock_ms = clock_ms
        self.quotas: Mapping[QuotaEntity, Mapping[str, float]] = {}
        self._rates: dict[tuple[QuotaKind, tuple[str | None, str | None]], WindowedRate] = {}
        self._buckets: dict[tuple[str | None, str | None], TokenBucket] = {}
        self._sweep_at = _MANY_RATES

    def open(self) -> None:
        """Read the file, if there is one. Raises KafkaStorageError if it is damaged."""
        try:
            data = self._files.read(self._path)
        except FileNotFoundError:
            return
        self.quotas = parse_document(self._path, data, _FORMAT, _parse)

    def change(self, changes: Mapping[QuotaEntity, Mapping[str, float | None]]) -> None:
        """Set quotas, and remove those that are None, durably. On OSError nothing has changed."""
        merged = {entity: dict(values) for entity, values in self.quotas.items()}
        for entity, values in changes.items():
            own = {**merged.get(entity, {}), **values}
            merged[entity] = {kind: value for kind, value in own.items() if value is not None}
        kept = {entity: values for entity, values in merged.items() if values}
        rows = [[list(entity), dict(sorted(values.items()))] for entity, values in kept.items()]
        document = {"version": _FORMAT, "quotas": rows}
        self._files.write_atomically(self._path, json.dumps(document, indent=1).encode(), private=True)
        self.quotas = kept

    def watch(self, context: RequestContext) -> None:
        """Measure a request that has arrived, and have it measured again when it is answered."""
        if not self.quotas or context.api in _OF_LOGIN:
            return
        if context.api is PRODUCE:
            # At once, because its answer waits for the disk, and more requests may be under way.
            throttle_ms = self._record(QuotaKind.PRODUCE, context, context.size)
            if throttle_ms:
                context.resume_ms = self._clock_ms() + throttle_ms
                context.mute(throttle_ms)
        context.throttle = lambda response: self._throttle(context, response)

    def charge(self, context: RequestContext, partitions: int, *, strict_since: int) -> None:
        """Count partitions that a request creates or deletes (KIP-599).

        Raises ThrottlingQuotaExceeded if there were too many before, in versions that clients know it from.
        """
        quota = self._find(QuotaKind.MUTATION, context)
        if quota is None:
            return
        bucket, now_ms = self._bucket(quota), self._clock_ms()
        is_strict = context.version >= strict_since
        if not is_strict:
            bucket.take(partitions, quota.limit, now_ms)
        throttle_ms = bucket.throttle_ms(quota.limit, now_ms)
        if throttle_ms:
            context.resume_ms = now_ms + throttle_ms
        if is_strict and throttle_ms:
            raise for_code(ErrorCode.THROTTLING_QUOTA_EXCEEDED)(
                f"wait {throttle_ms} ms: {QuotaKind.MUTATION}"
            )
        if is_strict:
            bucket.take(partitions, quota.limit, now_ms)

    def may_connect(self, address: str) -> bool:
        """Count a new connection of an address; one that comes too fast is not counted, and not served."""
        quota = find_address_quota(self.quotas, address) if self.quotas else None
        if quota is None:
            return True
        rate, now_ms = self._rate(QuotaKind.CONNECTION, quota), self._clock_ms()
        rate.record(1, now_ms)
        if not rate.throttle_ms(quota.limit, now_ms):
            return True
        rate.record(-1, now_ms)
        return False

    def fetch_limit(self, context: RequestContext) -> int | None:
        """Return the most bytes that a fetch may bring, so that the client's quota allows it at all."""
        quota = self._find(QuotaKind.FETCH, context)
        if quota is None:
            return None
        settings = self._settings
        return int(quota.limit * max(1, settings.quota_window_num - 1) * settings.quota_window_size_seconds)

    def fetched(self, context: RequestContext, size: int) -> int:
        """Record what a fetch brings; if that is too much now, it is not recorded, and must not be sent.

        After a pause in which nothing was sent anything may be: a batch can be larger than the quota.
        """
        quota = self._find(QuotaKind.FETCH, context)
        if quota is None or not size:
            return 0
        rate, now_ms = self._rate(QuotaKind.FETCH, quota), self._clock_ms()
        before = rate.total(now_ms)
        rate.record(size, now_ms)
        throttle_ms = rate.throttle_ms(quota.limit, now_ms) if before else 0
        if throttle_ms:
            rate.record(-size, now_ms)
        return throttle_ms

    def _throttle(self, context: RequestContext, response: Response | None) -> int:
        throttle_ms = self._record(QuotaKind.REQUEST, context, context.busy_seconds * 100)
        # As in Kafka, a share of the processor is not worth a pause longer than a window.
        throttle_ms = min(throttle_ms, self._settings.quota_window_size_seconds * 1000)
        throttle_ms = max(throttle_ms, context.resume_ms - self._clock_ms())
        if isinstance(response, FetchResponse):  # its handler has measured it
            throttle_ms = max(throttle_ms, response.throttle_time_ms)
        return throttle_ms

    def _record(self, kind: QuotaKind, context: RequestContext, amount: float) -> int:
        quota = self._find(kind, context)
        if quota is None:
            return 0
        rate, now_ms = self._rate(kind, quota), self._clock_ms()
        rate.record(amount, now_ms)
        return rate.throttle_ms(quota.limit, now_ms)

    def _find(self, kind: QuotaKind, context: RequestContext) -> ClientQuota | None:
        if not self.quotas:
            return None
        return find_quota(self.quotas, kind, context.principal.partition(":")[2], context.client_id)

    def _rate(self, kind: QuotaKind, quota: ClientQuota) -> WindowedRate:
        key = (kind, quota.shared_by)
        rate = self._rates.get(key)
        if rate is None:
            if len(self._rates) >= self._sweep_at:
                now_ms = self._clock_ms()
                self._rates = {each: rate for each, rate in self._rates.items() if not rate.is_idle(now_ms)}
                self._sweep_at = max(_MANY_RATES, 2 * len(self._rates))
            window_ms = self._settings.quota_window_size_seconds * 1000
            rate = self._rates[key] = WindowedRate(self._settings.quota_window_num, window_ms)
        return rate

    def _bucket(self, quota: ClientQuota) -> TokenBucket:
        found = self._buckets.get(quota.shared_by)
        if found is None:
            if len(self._buckets) >= _MANY_RATES:
                now_ms = self._clock_ms()
                self._buckets = {key: each for key, each in self._buckets.items() if not each.is_idle(now_ms)}
            settings = self._settings
            span_s = settings.controller_quota_window_num * settings.controller_quota_window_size_seconds
            found = self._buckets[quota.shared_by] = TokenBucket(span_s)
        return found


def _parse(document: Any) -> dict[QuotaEntity, dict[str, float]]:
    found: dict[QuotaEntity, dict[str, float]] = {}
    for names, values in document["quotas"]:
        pairs = [(str(each), None if name is None else str(name)) for each, name in names]
        numbers = {str(kind): float(value) for kind, value in values.items()}
        problems = [problem_with_entity(pairs), problem_with_quotas(pairs, numbers)]
        problems += [problem_with(*pair) for pair in numbers.items()]
        if any(problems):
            raise ValueError(next(filter(None, problems)))
        found[QuotaEntity.of(dict(pairs))] = numbers
    return found
