"""Samples in the text format of Prometheus, and over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from floodmark.observe import visible
from floodmark.report.metrics import METRICS, Metric, Sample

if TYPE_CHECKING:
    from threading import Thread
    from wsgiref.simple_server import WSGIServer

    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric as Family

Measure = Callable[[], Sequence[Sample]]


def text_of(samples: Sequence[Sample], everywhere: Mapping[str, str]) -> str:
    """The samples as text; `everywhere` are labels that each of them gets."""
    from prometheus_client import generate_latest

    return generate_latest(_registry(lambda: samples, everywhere)).decode()


def serve(
    measure: Measure, everywhere: Mapping[str, str], host: str, port: int
) -> tuple[WSGIServer, Thread]:
    """Answer every scrape with a new measurement, from a thread; raises OSError.

    An error of `measure` is answered with status 500, which Prometheus shows as `up == 0`.
    """
    from prometheus_client import start_http_server

    return start_http_server(port, host, _registry(measure, everywhere))


def _registry(measure: Measure, everywhere: Mapping[str, str]) -> CollectorRegistry:
    from prometheus_client import CollectorRegistry

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(measure, everywhere))
    return registry


class _Collector:
    """What the library asks whenever somebody looks."""

    def __init__(self, measure: Measure, everywhere: Mapping[str, str]) -> None:
        self._measure = measure
        self._everywhere = everywhere

    def describe(self) -> Iterable[Family]:
        """Nothing: registering must not measure."""
        return []

    def collect(self) -> Iterable[Family]:
        """One family for each metric that has a sample."""
        found: dict[Metric, list[Sample]] = {}
        for sample in self._measure():
            found.setdefault(sample.metric, []).append(sample)
        return [self._family(metric, found[metric]) for metric in METRICS if metric in found]

    def _family(self, metric: Metric, samples: Sequence[Sample]) -> Family:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
        family = kind(metric.name, metric.text, labels=[*self._everywhere, *metric.labels])
        for sample in samples:
            values = [*self._everywhere.values(), *sample.label_values]
            # A name may hold bytes that are no text; the library would fail on them.
            family.add_metric([visible(value) for value in values], sample.value)
        return family
