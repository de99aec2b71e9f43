"""What must hold of the charts of any trace."""

from __future__ import annotations

from auditor.timeline.picture import step_parts, step_timeline, window


def drawn(line):
    """Bars lie inside their step, in a lane; parts add up to their step."""
    chart, parts = step_timeline(line), step_parts(line)
    chosen = window(line)
    for bar in chart.bars if chart is not None else ():
        assert 0 <= bar.lane < len(chart.lanes) and bar.length > 0
        assert 0 <= bar.start <= bar.start + bar.length <= (chosen.end - chosen.start) / 1e3 + 0.01
    sums = [0.0] * (len(parts.lanes) if parts is not None else 0)
    for bar in parts.bars if parts is not None else ():
        sums[bar.lane] += bar.length
    if parts is not None:
        length = (line.steps.end - line.steps.start) / 1e3
        for name, total in zip(parts.lanes, sums):
            whole = float(length.max() if name.startswith("slowest") else length.mean())
            assert abs(total - whole) <= 0.01 + 1e-9 * abs(whole)
