"""The metrics of a scrape from plain samples."""

from connectors.views import Family, Sample, metrics

LEVEL, EVENTS = Family("level", "", ("cluster",)), Family("events_total", "", ("cluster", "kind"))


def test_samples_of_one_family_are_one_metric_and_its_name_says_whether_it_is_a_counter() -> None:
    scrape = metrics([Sample(LEVEL, ("a",), 1.0), Sample(EVENTS, ("a", "x"), 2), Sample(LEVEL, ("b",), 3.0)])
    found = {metric.name: (metric.type, [(s.labels, s.value) for s in metric.samples]) for metric in scrape}
    assert found == {
        "level": ("gauge", [({"cluster": "a"}, 1.0), ({"cluster": "b"}, 3.0)]),
        "events": ("counter", [({"cluster": "a", "kind": "x"}, 2)]),
    }
