#!/usr/bin/env python3
"""Runs the MLRsearch controller of its authors (PyPI: MLRsearch) on devices that the test simulates.

In, one JSON object a line: a search {"min_pps", "max_pps", "goals"}, then the outcome of each trial {"sent", "lost"}.
Out, one a line: the trial that is wanted {"load_pps", "duration_ns"}, and at the end {"results"}.
"""

import json
import sys

from MLRsearch import AbstractMeasurer, Config, MeasurementResult, MultipleLossRatioSearch, SearchGoal


def say(what):
    print(json.dumps(what), flush=True)


class Remote(AbstractMeasurer):
    def measure(self, intended_duration, intended_load):
        say({"load_pps": int(intended_load + 0.5), "duration_ns": int(intended_duration * 1e9 + 0.5)})
        outcome = json.loads(sys.stdin.readline())
        return MeasurementResult(
            intended_duration=intended_duration,
            intended_load=intended_load,
            offered_count=outcome["sent"],
            loss_count=outcome["lost"],
        )


def goal(asked):
    return SearchGoal(
        loss_ratio=asked["loss_ratio_ppm"] / 1e6,
        exceed_ratio=asked["exceed_ratio_ppm"] / 1e6,
        relative_width=asked["width_ppm"] / 1e6,
        initial_trial_duration=asked["initial_trial_ns"] / 1e9,
        final_trial_duration=asked["final_trial_ns"] / 1e9,
        duration_sum=asked["duration_sum_ns"] / 1e9,
        fail_fast=False,
    )


def number(load):
    return None if load is None else float(load)


for line in sys.stdin:
    asked = json.loads(line)
    config = Config()
    config.goals = [goal(one) for one in asked["goals"]]
    config.min_load = asked["min_pps"]
    config.max_load = asked["max_pps"]
    config.search_duration_max = 1e6
    config.warmup_duration = 0
    found = MultipleLossRatioSearch(config=config).search(measurer=Remote(), debug=lambda _: None)
    results = [found[one] for one in config.goals]
    say({
        "results": [
            {
                "lower_pps": number(result.relevant_lower_bound),
                "upper_pps": number(result.relevant_upper_bound),
                "throughput_pps": number(result.conditional_throughput),
            }
            for result in results
        ]
    })
