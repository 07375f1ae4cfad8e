"""The arithmetic of the report, at its boundaries."""

import unittest

from entries import HOLDFASTS
from report import Report, Verdict


def run(cpu_us=10.0, p50=100.0, p99=200.0):
    return {"rate": 1000.0, "cpu_us": cpu_us, "core_share": 1.0, "due": {"p50": p50, "p99": p99}}


def result(entry, cpu=(10.0,), p50=(100.0,), **more):
    fixed = [run(p50=value) for value in p50]
    saturated = {} if entry == "direct" else {"saturated": [run(cpu_us=value) for value in cpu], "rss_idle_kib": 1000, "rss_after_kib": 2000}
    missing = {"records_missing": 0} if entry in HOLDFASTS else {}
    return {"entry": entry, "fixed": {1000: fixed, 2000: fixed}, **saturated, **missing, **more}


def verdicts(results):
    return {(verdict.what, verdict.kind): verdict for verdict in Report(results).verdicts()}


class Ratios(unittest.TestCase):
    def test_the_full_policy_has_a_bar_of_its_own(self):
        results = [result("envoy-plain", (50,)), result("hyper-floor", (15,)), result("holdfast-full-policy", (20,))]
        found = {(what, kind, verdict.passed) for (what, kind), verdict in verdicts(results).items()}
        self.assertIn(("CPU per request of holdfast-full-policy, x E", "must", True), found)
        self.assertIn(("CPU per request of holdfast-full-policy, x F", "aim", False), found)

    def test_an_entry_counts_by_its_median_and_envoy_by_the_mean_of_its_runs(self):
        results = [
            result("envoy-plain", (90, 50, 40)),
            result("holdfast", (15, 16, 99)),
            result("holdfast-main-job", (14,)),
            result("hyper-floor", (10,)),
            result("envoy-plain", (60,)),
        ]
        report = Report(results)
        self.assertEqual((report.cpu("envoy-plain"), report.cpu("holdfast")), (55, 16))
        self.assertAlmostEqual(report.drift(), 0.2)
        found = verdicts(results)
        self.assertAlmostEqual(found["CPU per request of holdfast, x E", "must"].value, 16 / 55)
        self.assertEqual(found["CPU per request of holdfast, x F", "must"].value, 1.6)
        self.assertFalse(found["CPU per request of holdfast, x F", "must"].passed)
        self.assertTrue(found["CPU per request of holdfast-main-job, x F", "must"].passed)

    def test_the_bar_itself_passes(self):
        self.assertTrue(Verdict("x", 0.32, 0.32, "must").passed)
        self.assertFalse(Verdict("x", 0.3201, 0.32, "must").passed)

    def test_what_is_added_is_the_median_less_the_direct_median(self):
        results = [result("direct", p50=(40, 50, 900)), result("envoy-plain", p50=(250, 240, 100)), result("holdfast", p50=(200,))]
        report = Report(results)
        self.assertEqual(report.added("envoy-plain", 1000, "p50"), 190)
        found = verdicts(results)["added p50 at 1,000/s of holdfast, us, against envoy-plain", "must"]
        self.assertEqual((found.value, found.most, found.passed), (150, 190, True))

    def test_memory_is_in_decimal_megabytes_and_records_must_be_complete(self):
        results = [result("holdfast", rss_idle_kib=39_063, rss_after_kib=39_062, records_missing=1)]
        found = verdicts(results)
        self.assertFalse(found["MB idle", "must"].passed)
        self.assertTrue(found["MB after load", "aim"].passed)
        self.assertFalse(found["requests without access record", "must"].passed)


class Partial(unittest.TestCase):
    def test_lines_without_a_counterpart_are_left_out(self):
        self.assertEqual(Report([result("nginx")]).verdicts(), [])
        self.assertIsNone(Report([result("envoy-plain")]).drift())
        self.assertEqual(Report([result("nginx")]).rows()[0], ["nginx", "1,000", "10.0", "-", "-", "-", "-", "-", "-", "1.0", "2.0"])

    def test_a_proxy_that_left_its_core_idle_is_named(self):
        slack = result("haproxy")
        slack["saturated"][0]["core_share"] = 0.5
        self.assertIn("haproxy used 50 % of its core only", Report([slack]).notes()[0])


if __name__ == "__main__":
    unittest.main()
