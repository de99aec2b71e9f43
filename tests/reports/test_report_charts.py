"""Filled charts: all is drawn or left out, few points, right heights, links to it."""

import re
from dataclasses import replace

from auditor.reports import charts
from hypothesis import given
from hypothesis import strategies as st

from auditor.model.charts import Bar, Layers, Parts, Tone
from tests.reports import golden_charts

numbers = st.floats(allow_nan=True, allow_infinity=True)
words = st.text(max_size=8)
tones = st.lists(st.builds(Tone, words, st.integers(-2, 12)), max_size=3).map(tuple)
amounts = st.lists(st.integers(-5, 2**60), max_size=4).map(tuple)
any_layers = st.builds(
    Layers, words, words, st.sampled_from(("us", "event")), st.lists(numbers, max_size=4).map(tuple), tones,
    st.lists(amounts, max_size=3).map(tuple), amounts, st.lists(st.tuples(numbers, words), max_size=3).map(tuple),
    st.integers(0, 9), st.just(("MEM",)),
)  # fmt: skip
any_parts = st.builds(
    Parts, words, words, st.lists(words, max_size=3).map(tuple), tones,
    st.lists(st.builds(Bar, st.integers(-1, 4), numbers, numbers, st.integers(-1, 4), words), max_size=5).map(tuple), st.just(("MEM",)),
)  # fmt: skip


@given(any_layers, any_parts)
def test_any_chart_is_drawn_or_left_out(one, other):
    for picture in filter(None, (*charts.pictures((one,)), charts.picture(other))):
        assert all(re.fullmatch(r"[MHVhvz\d .-]+", shape.path) for shape in picture.shapes)
        assert picture.rows > 0


def test_a_chart_has_five_thousand_points_at_most():
    x = tuple(map(float, range(50_000)))
    large = replace(
        golden_charts.memory(), x=x, held=(tuple(range(50_000)),) * 3, reserved=tuple(range(50_000))
    )
    (picture,) = charts.pictures((large,))
    drawn = picture.data()
    assert (
        sum(len(layer["y"]) for layer in drawn["layers"]) + len(drawn["reserved"]) <= charts.POINTS
    )
    bars = tuple(Bar(0, float(number), 1.0, 0, "x") for number in range(20_000))
    many = charts.picture(replace(golden_charts.parts(), bars=bars))
    assert many is not None
    assert sum(len(group["row"]) for group in many.data()["groups"]) <= charts.POINTS
