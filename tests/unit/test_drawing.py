import re
from importlib.resources import files

from pipeline.drawing import DARK, LIGHT, draw_chart, stand_alone_svg


def draw_line(figure):
    figure.subplots().plot([1, 2])
    return "a line"


def test_a_chart_that_stands_alone_has_the_colours_of_the_reports_page():
    page = files("pipeline.evaluate").joinpath("report.html.jinja").read_text(encoding="utf-8")

    light, dark = (dict(re.findall(r"(--\w+): (#\w+)", part)) for part in page.split("@media", 1))

    assert {name: light[name] for name in LIGHT} == LIGHT
    assert {name: dark[name] for name in DARK} == DARK


def test_a_chart_on_a_page_takes_the_pages_colours_and_alone_its_own():
    chart = draw_chart("line", "A line", draw_line)

    assert "var(--muted)" in chart.svg
    assert not re.search(r"#a1000\d", chart.svg)
    assert "var(" not in stand_alone_svg(chart)
    assert f"fill: {LIGHT['--muted']}" in stand_alone_svg(chart)
