"""The report: sentences that agree with results, and a page that a browser shows."""

import dataclasses
import functools
import html.parser
import importlib
import operator
import re
import shutil
import statistics
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from experiments import catalogue
from experiments.harness.experiment import DATA
from experiments.harness.findings import said
from experiments.harness.results import Result, load_results
from experiments.harness.tables import render
from scripts.reports import page
from scripts.reports.contents import findings_of, papers_of
from tests.processes import ROOT

RESULTS = ROOT / "results"


@pytest.fixture(scope="module")
def results() -> list[Result]:
    return load_results([RESULTS])


@pytest.fixture(scope="module")
def text(results) -> str:
    """A page with some tables and figures of real results; all others are missing in it."""
    names = ("intention/scaling", "intention/policy_distillation", "neural_processes/wheel")
    few = [result for result in results if result.name in names]
    return page.html(papers_of(few, findings_of(few)), len(few))


def test_every_finding_holds_and_the_page_of_findings_is_that_of_the_results(results):
    findings = findings_of(results)
    groups = [group for of_paper in findings.values() for group in of_paper]
    assert len(groups) == len(catalogue.names("findings")) > 10
    assert [each.text for group in groups for each in group.findings if not each.holds] == []
    assert {group.name: group.missing for group in groups if group.missing} == {}
    assert (RESULTS / "findings.md").read_text() == page.markdown(findings, ["results"]), (
        "python -m scripts.report --only findings --results results"
    )


def test_results_that_do_not_fit_each_other_leave_the_rest_of_a_report(results):
    few = [result for result in results if result.name in ("intention/sine", "intention/kabsch")]
    one = next(result for result in few if result.name == "intention/sine" and result.preset == "quick")
    config = one.config | {"optimizer": one.config["optimizer"] | {"learning_rate": 1.0}}
    other = Result(one.folder.with_name("other"), one.content | {"config": config}, one.source)
    groups = {group.name: group for group in findings_of([*few, other])["intention"]}
    assert "claim one cell of intention/sine" in groups["intention/figure7_sine_quick"].missing
    assert groups["intention/figure10"].findings and not groups["intention/figure10"].missing


def test_the_readme_says_findings_alone(results):
    text = (ROOT / "README.md").read_text().partition("## What we found")[2]
    listed = [" ".join(item.split()) for item in text.partition("\n\n![")[0].split("\n- ")[1:]]
    known = {finding.text for groups in findings_of(results).values() for group in groups for finding in group.findings}
    assert len(listed) == 3 and set(listed) <= known


def test_the_readme_has_the_times_that_were_measured():
    text = (ROOT / "README.md").read_text().partition("CMANP's memory is constant")[2].partition("\n\n")[0]
    measured = (RESULTS / "benchmarks" / "np_two_cpu_cores.txt").read_text()
    said = re.findall(r"([\d.]+) (?:s|GiB|GFLOP/s)\b", text)
    first, many, rate, gib, long, within = said
    lines = (
        f"rate on all cores\n{rate} GFLOP/s",
        f"cmanp            100000 context points in {first} s, 1001472 targets in {many} s, 6 MiB",
        f"cmanp            1000000 context points in {long} s, 100352 targets",
    )
    assert [line for line in lines if line not in measured] == []
    for line, peak in zip(lines[1:], (gib, within)):
        assert measured.partition(line)[2].partition("\n")[0].endswith(f"peak of this process {peak} GiB")


def test_the_commands_of_stored_results_make_their_cells(results):
    for result in results:
        command = re.search(r"--config configs/(\S+)\.py:(\S+)", result.command)
        config = importlib.import_module(f"configs.{command[1].replace('/', '.')}").get_config(command[2])
        assert result.axes.items() <= config.axes.to_dict().items(), result.command
        for key in result.overrides:
            functools.reduce(operator.getitem, key.split("."), config)


def test_stored_tables_are_those_of_the_results(results):
    paths = sorted((RESULTS / "tables").rglob("*.md"))
    assert len(paths) > 20
    for path in paths:
        stem, name, preset = described(path)
        table = catalogue.find("tables", name)([each for each in results if preset in (None, each.preset)])
        assert path.read_text() == render(table, "md", stem), f"python -m scripts.tables --table {name}"


def test_stored_numbers_of_figures_are_those_of_the_results(results, monkeypatch, tmp_path):
    """To five digits, without the pictures, and without the figure that fits mixtures by scikit-learn."""
    monkeypatch.setattr(Figure, "savefig", lambda *args, **options: None)
    drawn = {*(RESULTS / "figures").rglob("*.csv")}
    assert drawn == {path.with_suffix(".csv") for path in (RESULTS / "figures").rglob("*.png")}
    paths = sorted(drawn - {RESULTS / "figures" / "set_transformer" / "figure4.csv"})
    assert len(paths) > 20
    number = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]\d+)?")
    for path in paths:
        _, name, preset = described(path)
        own, told = [each for each in results if preset in (None, each.preset)], f"scripts.figures --figure {name}"
        picture = catalogue.find("figures", name)(own, tmp_path)
        texts = picture.with_suffix(".csv").read_text(), path.read_text()
        assert number.sub("", texts[0]) == number.sub("", texts[1]), told
        numbers = [np.array(number.findall(text), float) for text in texts]
        np.testing.assert_allclose(*numbers, rtol=1e-5, atol=1e-7, err_msg=told)


def test_results_hold_no_data_of_others():
    """As scripts.collect leaves them: no image, and no recorded sequence."""
    for path in RESULTS.rglob("examples.npz"):
        with np.load(path) as arrays:
            held = [name for name in arrays.files if name.startswith(DATA) or arrays[name].dtype == np.uint8]
        assert not held, f"{path}: {held}; scripts.collect leaves them out"


def described(path: Path) -> tuple[str, str, str | None]:
    """'cmanp/table4_quick', 'cmanp/table4' and 'quick' of a stored file."""
    stem = path.relative_to(RESULTS).with_suffix("").as_posix().partition("/")[2]
    return stem, *re.fullmatch(r"(.*?)(?:_(paper|quick))?", stem).groups()


def test_the_index_of_configs_has_the_costs_that_were_measured(results):
    rows = re.findall(r"configs/([\w/]+)\.py:.*?` \| ([^|]*) \|", (ROOT / "configs" / "README.md").read_text())
    told = dict(rows)
    files = (ROOT / "configs").glob("*/*.py")
    assert told.keys() == {path.relative_to(ROOT / "configs").with_suffix("").as_posix() for path in files}
    measured = {name: cost for name in told if (cost := cost_of(name, results))}
    assert len(measured) > 20 and measured == {name: told[name] for name in measured}


CHANGES_COST = {"train.steps", "train.seeds"}


def cost_of(name: str, results: list[Result]) -> str | None:
    """'3 minutes (1 to 26)': the median of what runs of `quick` took, with the least and the most; None: no run.

    A run whose number of steps or seeds was changed on the command line is not counted.
    """
    own = [result for result in results if (result.name, result.preset) == (name, "quick")]
    times = [result.content["wall_time_s"] for result in own if not CHANGES_COST & result.overrides.keys()]
    if not times:
        return None
    least, middle, most = (max(1, round(of(times) / 60)) for of in (min, statistics.median, max))
    return f"{middle} minute{'s' * (middle > 1)}" + (f" ({least} to {most})" if least < most else "")


@pytest.mark.parametrize("name", catalogue.names("findings"))
def test_a_changed_number_changes_a_finding(results, name):
    """Every metric half as large again, and a little more, so that ratios change too."""
    find = catalogue.find("findings", name)
    before, _ = said(find, results)
    after, _ = said(find, list(map(changed, results)))
    assert before and before != after


def changed(result: Result) -> Result:
    metrics = {
        name: summary | {key: 1.5 * summary[key] + 0.01 for key in ("mean", "median") if summary[key] is not None}
        for name, summary in result.content["metrics"].items()
    }
    return dataclasses.replace(result, content=result.content | {"metrics": metrics})


class Outline(html.parser.HTMLParser):
    """Tags that are open, ids, the cells of every row of every table, and what is loaded."""

    def __init__(self, text: str):
        super().__init__()
        self.open, self.ids, self.tables, self.made, self.loaded = [], [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.made += [attributes["data-made"]] if "data-made" in attributes else []
        self.loaded += [attributes[name][:22] for name in ("src", "href") if name in attributes]
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append(0)
        if tag in ("td", "th"):
            self.tables[-1][-1] += 1
        if tag not in ("meta", "link", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_no_network(text):
    outline = Outline(text)
    assert outline.open == [] and len(outline.ids) == len(set(outline.ids))
    assert outline.tables and all(len(set(widths)) == 1 for widths in outline.tables)
    assert set(outline.loaded) == {"data:,", "data:image/png;base64,"}
    assert any("configs/neural_processes/wheel.py:" in made and "model=cnp" in made for made in outline.made)
    assert {"tables-cmanp-table7-quick", "figures-intention-figure3-quick", "tables-cmanp-table4"} <= set(outline.ids)


@pytest.fixture(scope="module")
def browser():
    """Headless Chromium, driven by Selenium; skips where either is missing."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="Selenium is not installed")
    programs = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in programs:
        pytest.skip("Chromium or its driver is not installed")
    options = webdriver.ChromeOptions()
    for argument in ("headless=new", "no-sandbox", "disable-gpu", "no-first-run", "disable-background-networking"):
        options.add_argument(f"--{argument}")
    options.binary_location = programs[0]
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(programs[1]))
    yield driver
    driver.quit()


@pytest.mark.parametrize("width", [400, 1600])
def test_a_browser_shows_the_page(browser, text, tmp_path: Path, width):
    (tmp_path / "index.html").write_text(text)
    size = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get((tmp_path / "index.html").as_uri())
    run = browser.execute_script
    assert run("return document.documentElement.scrollWidth") <= width
    assert run("return document.images.length > 2 && [...document.images].every(image => image.naturalWidth > 100)")

    table = "document.querySelector('#tables-cmanp-table7-quick table')"
    column = f"[...{table}.tBodies[0].rows].map(row => row.cells[2].dataset.value).filter(value => value).map(Number)"
    before = run(f"return {column}")
    run(f"{table}.tHead.rows[0].cells[2].querySelector('button').click()")
    assert run(f"return {column}") == sorted(before) != before
    run(f"{table}.tHead.rows[0].cells[2].querySelector('button').click()")
    assert run(f"return {column}") == sorted(before, reverse=True)

    run(f"{table}.querySelector('td[data-made]').focus()")
    assert "python -m experiments.run --config configs/neural_processes/wheel.py" in run("return made.textContent")
    shown = "[...document.querySelectorAll('section.paper')].filter(each => !each.hidden).length"
    assert run(f"paper.value = 'kvq'; paper.dispatchEvent(new Event('change')); return {shown}") == 1
    assert browser.get_log("browser") == []
