"""What must hold of the parts of any trace."""

from auditor.timeline.phases import step_parts


def drawn(line):
    """Parts add up to their step."""
    parts = step_parts(line)
    if parts is None:
        return
    sums = [0.0] * len(parts.rows)
    for bar in parts.bars:
        assert bar.start >= 0 and bar.length > 0
        sums[bar.row] += bar.length
    length = (line.steps.end - line.steps.start) / 1e3
    for name, total in zip(parts.rows, sums):
        whole = float(length.max() if name.startswith("slowest") else length.mean())
        assert abs(total - whole) <= 0.01 + 1e-9 * abs(whole)
