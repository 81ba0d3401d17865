"""Judges the results of `frontier.py`: which ways of waiting are on the frontier of latency and CPU time, and whether
`adaptive` holds each goal that a fixed mode holds, and at what multiple of that mode's CPU time. Nothing here reads files
or measures.

A quantile of a run leaves out the samples in gaps, in which the host had taken the CPU from a spinning loop. Frames lost
outside gaps count as later than any bound. The medians over the rounds are judged. For OVS-DPDK only the generator's gaps
are known, so it is compared with the "blind" runs of `adaptive`, of which also only these gaps are used.
"""

import math
import statistics

GOALS_US = [30, 60, 120, 250]
QUANTILES = {"p99": 0.99, "p99.9": 0.999}
# Of the CPU time of the cheapest fixed mode that holds the goal; of that of a tighter goal; of OVS-DPDK's at equal p99.
MOST, MOST_OF_TIGHTER, MOST_OF_OVS = 1.1, 1.1, 0.7
# With the queue's own moderation as a wait: on these loads, from this goal on, so much less than the cheapest.
HOLD_OFF, HOLD_OFF_TRAFFIC, HOLD_OFF_US = 0.8, ("poisson20k", "poisson100k"), 120
# The same mode measured twice differs by more than this: the machine is too busy for its checks to mean much.
NOISY = {"p99": 1.25, "cpu": 1.10}
# More than this share of the samples left out, and a run says nothing about a goal (as in `apus bench`).
MOST_EXCLUDED = 0.10


def goal_name(quantile, us, blind=False):
    return f"{'blind' if blind else 'adaptive'} {quantile}={us}us"


class Point:
    """All runs of one way of waiting under one traffic."""

    def __init__(self, name, family, runs):
        self.name, self.family, self.runs = name, family, runs

    def all(self, key):
        return [run[key] for run in self.runs if run[key] is not None]

    def median(self, key):
        values = self.all(key)
        return statistics.median(values) if values else None

    def latency(self, quantile):
        """The median over the runs, in us; None if no run has the quantile; infinite if too many frames were lost."""
        values = []
        for run in self.runs:
            lost = run["lost_outside_gaps"] / max(run["intended"], 1)
            known = run["clean"][quantile]
            if lost > 1 - QUANTILES[quantile]:
                values.append(math.inf)
            elif known is not None:
                values.append(known)
        return statistics.median(values) if values else None

    def all_p99(self):
        """The median of the p99 of all samples, including those in gaps."""
        values = [run["all"]["p99"] for run in self.runs if run["all"]["p99"] is not None]
        return statistics.median(values) if values else None

    def trusted(self):
        """Whether enough samples are left. If the gaps of the worker are unknown, only the known gaps count."""
        return (self.median("excluded") or 0) <= MOST_EXCLUDED

    def holds(self, quantile, us):
        """True, False, or None if it cannot be judged."""
        latency = self.latency(quantile)
        return None if latency is None or not self.trusted() else latency <= us


def points(document):
    """Maps each traffic to its points, from a document that frontier.py has written."""
    families = {c["name"]: c["family"] for c in document["contenders"]}
    found = {}
    for run in document["runs"]:
        found.setdefault(run["traffic"], {}).setdefault(run["contender"], []).append(run)
    return {traffic: [Point(name, families[name], runs) for name, runs in of.items()] for traffic, of in found.items()}


def frontier(of, quantile):
    """Names of the points that no other point beats in both latency and CPU time; for each other point, who beats it. A
    point that lost so many frames that it has no such latency is neither."""
    known = [(p.name, p.latency(quantile), p.median("cpu")) for p in of]
    known = [(name, x, y) for name, x, y in known if x is not None and y is not None and math.isfinite(x)]
    beaten = {}
    for name, x, y in known:
        by = [n for n, x2, y2 in known if x2 <= x and y2 <= y and (x2 < x or y2 < y)]
        if by:
            beaten[name] = by
    return [name for name, _, _ in known if name not in beaten], beaten


def on_curve(curve, x):
    """The least CPU time with which a family of points reaches the latency `x`: on the line between two points of its
    frontier. None if `x` is lower than the latency of all these points."""
    best = []
    for at, cpu in sorted(curve):
        if not best or cpu < best[-1][1]:
            best.append((at, cpu))
    left = [point for point in best if point[0] <= x]
    right = [point for point in best if point[0] > x]
    if not left:
        return None
    (x0, y0) = left[-1]
    if not right or math.isinf(right[0][0]):
        return y0
    (x1, y1) = right[0]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


def check(kind, traffic, what, outcome, **more):
    """One line of the verdict. Its outcome is "lost", "held" or "open" (cannot be judged)."""
    return {"kind": kind, "traffic": traffic, "what": what, "outcome": outcome, **more}


def judge_goals(traffic, of):
    """Compares each goal with the fixed modes and with the tighter goals."""
    named, checks = {p.name: p for p in of}, []
    fixed = [p for p in of if p.family in ("fixed", "backoff")]
    for quantile in QUANTILES:
        tighter = []
        for us in GOALS_US:
            ours = named.get(goal_name(quantile, us))
            if ours is None:
                continue
            holders = [p for p in fixed if p.holds(quantile, us)]
            cheapest = min(holders, key=lambda p: p.median("cpu"), default=None)
            held, cpu = ours.holds(quantile, us), ours.median("cpu")
            more = {"quantile": quantile, "goal_us": us, "latency_us": ours.latency(quantile), "cpu": cpu,
                    "held": held, "cheapest": cheapest and cheapest.name,
                    "cheapest_cpu": cheapest and cheapest.median("cpu"),
                    "multiple": cheapest and cpu / max(cheapest.median("cpu"), 1e-9)}
            what = f"{quantile}={us}us"
            if held is None:
                checks.append(check("goal", traffic, what, "open", **more))
            elif not held:
                checks.append(check("goal", traffic, what, "lost" if cheapest else "open", **more))
            else:
                bound = HOLD_OFF if (quantile, traffic in HOLD_OFF_TRAFFIC, us >= HOLD_OFF_US) == ("p99", True, True) else MOST
                more["bound"] = bound
                worse = cheapest and more["multiple"] > bound
                checks.append(check("goal", traffic, what, "lost" if worse else "held", **more))
            # Whatever was set for a tighter goal and holds this one, too, is a way to hold it.
            enough = min((p for p in tighter if p.holds(quantile, us)), key=lambda p: p.median("cpu"), default=None)
            if enough:
                less = enough.median("cpu")
                outcome = "lost" if cpu > less * MOST_OF_TIGHTER else "held"
                checks.append(check("looser", traffic, f"{what} against {enough.name.split('=')[1]}", outcome, cpu=cpu,
                                    multiple=cpu / max(less, 1e-9), cheapest_cpu=less, bound=MOST_OF_TIGHTER))
            tighter.append(ours)
    return checks


def judge_ovs(traffic, of):
    """Compares our points with OVS-DPDK's curve at the same p99."""
    curve = [(p.latency("p99"), p.median("cpu")) for p in of if p.family == "ovs"]
    curve = [point for point in curve if None not in point]
    checks = []
    for us in GOALS_US:
        ours = next((p for p in of if p.name == goal_name("p99", us, blind=True)), None)
        if ours is None or not curve or (x := ours.latency("p99")) is None:
            continue
        theirs = on_curve(curve, x)
        more = {"latency_us": x, "cpu": ours.median("cpu"), "cheapest_cpu": theirs, "bound": MOST_OF_OVS}
        if theirs is None:
            # Left of all that OVS reaches: nothing to compare with.
            checks.append(check("ovs", traffic, f"p99={us}us", "open", multiple=None, **more))
            continue
        ratio = more["cpu"] / max(theirs, 1e-9)
        outcome = "lost" if ratio > MOST_OF_OVS else "held"
        checks.append(check("ovs", traffic, f"p99={us}us", outcome, multiple=ratio, **more))
    return checks


def noise(of):
    """How much two measurements of the same mode in each round differ: the medians of the ratios. None where no round
    has both values."""
    named = {p.name: p for p in of}
    if "interrupt" not in named or "interrupt again" not in named:
        return None

    def ratio(value):
        pairs = [(value(a), value(b)) for a, b in zip(named["interrupt"].runs, named["interrupt again"].runs)]
        ratios = [max(pair) / max(min(pair), 1e-9) for pair in pairs if None not in pair]
        return statistics.median(ratios) if ratios else None

    return {"cpu": ratio(lambda run: run["cpu"]), "p99": ratio(lambda run: run["clean"]["p99"])}


def is_noisy(floor):
    """Whether the checks of a traffic mean little, by its `noise`. An unknown difference counts as a large one."""
    return floor is not None and any(floor[what] is None or floor[what] > most for what, most in NOISY.items())


def plain(value):
    """`value` as JSON can express it: an infinite latency becomes None."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def judge(document):
    """All checks, the lost ones first."""
    order = {"lost": 0, "open": 1, "held": 2}
    checks, fronts, floors = [], {}, {}
    for traffic, of in points(document).items():
        checks += judge_goals(traffic, of) + judge_ovs(traffic, of)
        fronts[traffic] = {quantile: dict(zip(("frontier", "beaten_by"), frontier(of, quantile))) for quantile in QUANTILES}
        floors[traffic] = noise(of)
    for c in checks:
        c["noisy"] = is_noisy(floors[c["traffic"]])
    checks.sort(key=lambda c: order[c["outcome"]])
    return {"checks": checks, "frontiers": fronts, "noise": floors}


def line(c):
    """A check as a line of text."""
    number = lambda value, unit: "-" if value is None else f"{value:.1f} {unit}"
    goal = c.get("cheapest") or "no fixed mode holds it"
    if c["kind"] == "goal" and c["held"] is None:
        goal = "too few samples, or too many left out"
    ovs = "OVS-DPDK at equal p99" if c.get("cheapest_cpu") else "OVS-DPDK has no p99 as low"
    against = {"goal": goal, "looser": "the tighter goal", "ovs": ovs}[c["kind"]]
    word = {"lost": "LOST", "held": "held", "open": "open"}[c["outcome"]]
    latency = number(c.get("latency_us"), "us")
    if c["kind"] == "goal" and c["held"] is False:
        latency += " MISSED"
    multiple = "" if c.get("multiple") is None else f"{c['multiple']:.2f} x"
    return (f"{word:5} {c['traffic']:12} {c['what']:24} {latency:18} {number(c['cpu'], '%'):>8} {multiple:>7} of "
            f"{number(c.get('cheapest_cpu'), '%'):>8}  {against}{' (noisy)' if c['noisy'] else ''}")
