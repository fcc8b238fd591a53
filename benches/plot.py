"""Horizontal bar charts as plain SVG text, readable on light and dark pages."""
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
