"""Makes the page of `frontier.py`: one HTML file without scripts that loads nothing, and contains the data as JSON."""

import html
import json
import math

import frontier_judge as judge

# Okabe & Ito, "Color Universal Design" (2008); each family has a mark of its own, too.
LOOKS = {
    "fixed": ("#000000", "square", "poll, interrupt, hybrid300"),
    "again": ("#999999", "square", "interrupt, measured again"),
    "backoff": ("#e69f00", "triangle", "backoff"),
    "adaptive p99": ("#0072b2", "circle", "adaptive, goals at p99"),
    "adaptive p99.9": ("#56b4e9", "circle", "adaptive, goals at p99.9"),
    "blind": ("#009e73", "circle", "adaptive at p99, measured as OVS-DPDK is"),
    "ovs": ("#d55e00", "diamond", "OVS-DPDK, longest sleep"),
    "testpmd": ("#cc79a7", "diamond", "testpmd"),
}
# Families whose points are one curve, from setting to setting.
CURVES = ("backoff", "adaptive p99", "adaptive p99.9", "blind", "ovs")
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 620, 400, 52, 40, 12, 14
STYLE = """
body{font:15px/1.45 system-ui,sans-serif;max-width:1300px;margin:2em auto;padding:0 1em;color:#222;background:#fff}
.pair{display:flex;flex-wrap:wrap;gap:12px}svg{width:100%;max-width:620px;height:auto}
svg text{font:11px system-ui,sans-serif;fill:#333}table{border-collapse:collapse;font-variant-numeric:tabular-nums}
td,th{padding:2px 10px;text-align:right;border-bottom:1px solid #ddd}td:first-child,th:first-child,.t{text-align:left}
.lost{color:#b00020}.open{color:#777}.key span{margin-right:1.4em;white-space:nowrap}
"""


def text(value):
    return html.escape(str(value))


class Scale:
    """A logarithmic axis."""

    def __init__(self, values, low, high, least, most):
        least, most = min([least, *values]), max([most, *values])
        self.least, self.span = math.log10(least), math.log10(most) - math.log10(least)
        self.low, self.high, self.ends = low, high, (least, most)

    def at(self, value):
        return self.low + (math.log10(value) - self.least) / self.span * (self.high - self.low)

    def ticks(self):
        powers = range(math.floor(self.least), math.ceil(self.least + self.span) + 1)
        every = [step * 10.0**power for power in powers for step in (1, 2, 5)]
        return [tick for tick in every if self.ends[0] <= tick <= self.ends[1]]


def mark(shape, x, y, colour, hover):
    r = 4.5
    body = {
        "square": f'<rect x="{x - r:.1f}" y="{y - r:.1f}" width="{2 * r}" height="{2 * r}"',
        "circle": f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r}"',
        "triangle": f'<path d="M{x:.1f} {y - r - 1:.1f}L{x + r + 1:.1f} {y + r:.1f}H{x - r - 1:.1f}Z"',
        "diamond": f'<path d="M{x:.1f} {y - r - 1:.1f}L{x + r + 1:.1f} {y:.1f}L{x:.1f} {y + r + 1:.1f}L{x - r - 1:.1f} {y:.1f}Z"',
    }[shape]
    return f'{body} fill="{colour}" stroke="#fff"><title>{text(hover)}</title></{body[1:].split(" ")[0]}>'


def label_of(point):
    """The text beside a mark: the setting, or the name if there is no setting."""
    last = point.name.split()[-1]
    return last.split("=")[-1] if point.family in CURVES else point.name


def figure(of, quantile):
    """A plot with latency to the right and CPU time upwards; thin lines show the range over the rounds."""
    known = [(p, p.latency(quantile), p.median("cpu")) for p in of]
    known = [(p, x, max(y, 0.1)) for p, x, y in known if x is not None and math.isfinite(x) and y is not None]
    if not known:
        return f"<p>No {quantile}: too few samples.</p>"
    x = Scale([of for _, of, _ in known], LEFT, WIDTH - RIGHT, 10, 500)
    y = Scale([of for _, _, of in known], HEIGHT - BOTTOM, TOP, 2, 110)
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="CPU time against {quantile}">']
    for tick in x.ticks():
        at = x.at(tick)
        parts.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="#eee"/>'
                     f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 15}" text-anchor="middle">{tick:g}</text>')
    for tick in y.ticks():
        at = y.at(tick)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="#eee"/>'
                     f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{tick:g}</text>')
    for us in judge.GOALS_US:
        at = x.at(us)
        parts.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="#0072b2" '
                     f'stroke-dasharray="2 3"><title>goal {us} us</title></line>')
    parts.append(f'<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 6}" text-anchor="middle">{quantile}, us</text>'
                 f'<text transform="translate(13 {HEIGHT / 2}) rotate(-90)" text-anchor="middle">CPU time, % of a core</text>')
    for family in CURVES:
        line = [f"{x.at(a):.1f},{y.at(b):.1f}" for p, a, b in known if p.family == family]
        if len(line) > 1:
            parts.append(f'<polyline points="{" ".join(line)}" fill="none" stroke="{LOOKS[family][0]}" opacity=".45"/>')
    for point, a, b in known:
        colour, shape, _ = LOOKS[point.family]
        runs = [run["clean"][quantile] for run in point.runs if run["clean"][quantile] is not None]
        ends = [min(max(x.at(v), LEFT), WIDTH - RIGHT) for v in (min(runs), max(runs))]
        cpus = [y.at(max(v, 0.1)) for v in (min(point.all("cpu")), max(point.all("cpu")))]
        at = (x.at(a), y.at(b))
        hover = f"{point.name}: {quantile} {a:.1f} us, {b:.1f} % CPU; {len(point.runs)} rounds, {min(runs):.1f} to {max(runs):.1f} us"
        parts.append(f'<path d="M{ends[0]:.1f} {at[1]:.1f}H{ends[1]:.1f}M{at[0]:.1f} {cpus[0]:.1f}V{cpus[1]:.1f}" '
                     f'stroke="{colour}" opacity=".3"/>' + mark(shape, *at, colour, hover)
                     + f'<text x="{at[0] + 7:.1f}" y="{at[1] - 5:.1f}" style="fill:{colour}">{text(label_of(point))}</text>')
    return "".join(parts) + "</svg>"


def key():
    spans = [f'<span><svg viewBox="0 0 14 14" style="width:14px;height:14px">{mark(shape, 7, 7, colour, name)}</svg> {text(name)}</span>'
             for colour, shape, name in LOOKS.values()]
    return f'<p class="key">{"".join(spans)} <span>dotted: the goals</span></p>'


def checks(document):
    """The verdicts, the lost checks first; the checks that hold are only counted."""
    found = document["verdict"]["checks"]
    number = lambda value, form: "-" if value is None else format(value, form)
    titles = {"goal": "goal", "looser": "looser goal", "ovs": "OVS-DPDK at equal p99"}
    count = {outcome: sum(c["outcome"] == outcome for c in found) for outcome in ("lost", "held", "open")}
    rows = []
    for c in found:
        if c["outcome"] == "held":
            continue
        why = "missed; held by " + str(c["cheapest"]) if c["kind"] == "goal" and c["held"] is False and c["cheapest"] else ""
        if c["outcome"] == "open":
            why = "cannot be said, or nobody else holds it"
        rows.append(f'<tr class="{c["outcome"]}"><td>{c["outcome"]}</td><td class="t">{titles[c["kind"]]}</td>'
                    f'<td class="t">{text(c["traffic"])}</td><td class="t">{text(c["what"])}</td>'
                    f'<td>{number(c.get("latency_us"), ".1f")}</td><td>{number(c["cpu"], ".1f")}</td>'
                    f'<td>{number(c.get("cheapest_cpu"), ".1f")}</td><td>{number(c.get("multiple"), ".2f")}</td>'
                    f'<td class="t">{text(why or c.get("cheapest") or "")}{" (noisy)" if c["noisy"] else ""}</td></tr>')
    return (f'<h2>Checks</h2><p>{count["lost"]} lost, {count["held"]} held, {count["open"]} open. Noisy: the same mode measured twice differs by '
            f'more than {judge.NOISY["p99"]} x in p99 or {judge.NOISY["cpu"]} x in CPU time.</p><table><tr><th></th>'
            '<th class="t">against</th><th class="t">traffic</th><th class="t">goal</th><th>us</th><th>CPU %</th><th>its CPU %</th>'
            '<th>multiple</th><th class="t"></th></tr>' + "".join(rows) + "</table>")


def section(document, traffic, of):
    number = lambda value: "-" if value is None else f"{value:.1f}"
    floor = document["verdict"]["noise"][traffic]
    fronts = document["verdict"]["frontiers"][traffic]
    rows = "".join(
        f'<tr><td>{text(p.name)}</td><td>{number(p.latency("p99"))}</td><td>{number(p.latency("p99.9"))}</td>'
        f'<td>{number(p.all_p99())}</td><td>{number(p.median("cpu"))}</td><td>{number(p.median("wakeups_per_s"))}</td>'
        f'<td>{100 * (p.median("excluded") or 0):.1f}</td><td>{sum(p.all("lost"))}</td>'
        f'<td class="t">{", ".join(q for q in judge.QUANTILES if p.name in fronts[q]["frontier"])}</td></tr>' for p in of)
    times = lambda value: "an unknown factor" if value is None else f"{value:.2f} x"
    noise = (f" The same mode twice: p99 differs by {times(floor['p99'])}, CPU time by {times(floor['cpu'])} (medians)."
             if floor else "")
    return (f"<h2>{text(traffic)}: <code>{text(document['traffic'][traffic])}</code></h2>"
            f'<div class="pair">{"".join(figure(of, quantile) for quantile in judge.QUANTILES)}</div>'
            f"<p>{len(of[0].runs)} rounds, medians.{noise}</p><table><tr><th></th><th>p99 us</th><th>p99.9 us</th>"
            "<th>p99 us, all</th><th>CPU %</th><th>woken/s</th><th>left out %</th><th>lost</th>"
            f'<th class="t">on the frontier at</th></tr>{rows}</table>')


def render(document):
    """The whole page."""
    points, of = judge.points(document), document["host"]
    facts = (f"{of['cpu_model']}, {of['cpus']} CPUs, Linux {of['kernel']}, {of['at']}; load average "
             f"{of['load_average_before'][0]:.1f} before, {of['load_average_after'][0]:.1f} after; {document['rounds']} rounds "
             f"of {document['seconds']:g} s" + ("; interrupted" if document["interrupted"] else "")
             + (f"; stopped early: {document['failed']}" if document.get("failed") else ""))
    data = json.dumps(judge.plain(document), allow_nan=False).replace("<", "\\u003c")
    return ('<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" '
            "content=\"default-src 'none'; style-src 'unsafe-inline'\"><title>Latency against CPU time</title>"
            f"<style>{STYLE}</style></head><body><h1>Latency against CPU time</h1><p>{text(facts)}.</p>"
            "<p>Thin lines span the rounds. p99 and p99.9 leave out the packets that met a gap, in which the host had taken a "
            "spinning loop's CPU. Of OVS-DPDK and testpmd only the generator's gaps are known, and so it is for the runs of "
            f"`adaptive` that are called blind; these are compared with OVS-DPDK.</p>{key()}{checks(document)}"
            + "".join(section(document, traffic, points[traffic]) for traffic in points)
            + f'<script type="application/json" id="apus-data">{data}</script></body></html>\n')
