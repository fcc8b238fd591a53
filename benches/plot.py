"""Tables, and charts as plain SVG text, readable on light and dark pages."""
import math
import os
import platform
from html import escape

GROUPS = [
    ("Durable creates per second (more is better)", ["create_1", "create_16"]),
    ("List of 10,000 ConfigMaps of 1 KiB, milliseconds (less is better)", ["list_json", "list_protobuf", "list_table"]),
    ("100 watchers × 1,000 events (less is better)", ["watch", "watch_p99"]),
    ("Resident memory, MiB (less is better)", ["rss_idle", "rss_10k", "rss_100k"]),
    ("exec → ready, milliseconds (less is better)", ["ready", "ready_again"]),
]
COLOURS = {"selvedge": "#3b4cc0", "selvedge on etcd": "#8fa8e8", "kube-apiserver": "#d08b4f"}
WIDTH, LEFT, BAR, GAP = 820, 250, 18, 14


def bars(title, measures):
    """One group of bars per measure, each group on its own scale: units differ and so do magnitudes."""
    parts, y = [], 44
    for what, unit, values in measures:
        present = {n: v for n, v in values.items() if v}
        top = max(present.values(), default=1)
        parts.append(f'<text x="{LEFT - 12}" y="{y + BAR * len(present) / 2 + 4}" text-anchor="end">{escape(what)}</text>')
        for name, value in present.items():
            width = max(2, (WIDTH - LEFT - 230) * value / top)
            number = f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"
            parts.append(f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR - 3}" rx="2" fill="{COLOURS.get(name, "#888")}"/>')
            parts.append(f'<text x="{LEFT + width + 6:.1f}" y="{y + BAR - 6}">{number} {unit} <tspan opacity=".6">{escape(name)}</tspan></text>')
            y += BAR
        y += GAP
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" height="{y}" role="img">\n'
            "<style>text{font:13px system-ui,sans-serif;fill:#333}@media(prefers-color-scheme:dark){text{fill:#ddd}}</style>\n"
            f'<text x="8" y="22" style="font-weight:600">{escape(title)}</text>\n' + "\n".join(parts) + "\n</svg>\n")


def lines(title, series):
    """Both scales are logarithmic: what grows with the size is a straight line that rises, what does not is flat."""
    width, height, left, top = 640, 300, 60, 40
    points = [point for line in series.values() for point in line if point[1]]
    (x0, x1), (y0, y1) = [(math.floor(math.log10(min(p[i] for p in points))), math.ceil(math.log10(max(p[i] for p in points)))) for i in (0, 1)]
    x1, y1 = max(x1, x0 + 1), max(y1, y0 + 1)
    def at(x, y):
        return left + (math.log10(x) - x0) / (x1 - x0) * width, top + (1 - (math.log10(y) - y0) / (y1 - y0)) * height
    parts = []
    for n in range(x0, x1 + 1):
        x, _ = at(10**n, 10**y0)
        parts.append(f'<line x1="{x:.0f}" y1="{top}" x2="{x:.0f}" y2="{top + height}" class="grid"/>')
        parts.append(f'<text x="{x:.0f}" y="{top + height + 18}" text-anchor="middle">{10**n:,}</text>')
    for n in range(y0, y1 + 1):
        _, y = at(10**x0, 10**n)
        parts.append(f'<line x1="{left}" y1="{y:.0f}" x2="{left + width}" y2="{y:.0f}" class="grid"/>')
        parts.append(f'<text x="{left - 6}" y="{y + 4:.0f}" text-anchor="end">{10**n:,}</text>')
    for (name, line), colour in zip(series.items(), ("#3b4cc0", "#d08b4f", "#4a9d5b", "#b04a9d", "#888")):
        drawn = [at(*point) for point in line if point[1]]
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in drawn)}"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in drawn]
        parts.append(f'<text x="{left + width + 12}" y="{drawn[-1][1] + 4:.0f}" style="fill:{colour}">{escape(name)}</text>')
    whole = (left + width + 380, top + height + 40)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {whole[0]} {whole[1]}" width="{whole[0]}" height="{whole[1]}" role="img">\n'
            "<style>text{font:13px system-ui,sans-serif;fill:#333}.grid{stroke:#8884}@media(prefers-color-scheme:dark){text{fill:#ddd}}</style>\n"
            f'<text x="8" y="22" style="font-weight:600">{escape(title)}</text>\n' + "\n".join(parts) + "\n</svg>\n")


def markdown(table):
    table = list(table)
    widths = [max(len(r[i]) for r in table) for i in range(len(table[0]))]
    def line(r):
        return "| " + " | ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(r, widths))) + " |"
    return "\n".join([line(table[0]), "|" + "|".join("-" * (w + 2) if i == 0 else "-" * (w + 1) + ":" for i, w in enumerate(widths)) + "|",
                      *map(line, table[1:])])


def machine():
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores ({model}), {memory_gib:.0f} GiB, Linux {platform.release()}"
