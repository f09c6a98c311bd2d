"""Writes every table, figure and finding into one page: python -m scripts.report --out report

DIR/index.html needs no network and no other file. Tables can be sorted; a number tells how it was made to who points at
it. DIR/findings.md has the findings alone: sentences whose numbers are read from results. A finding that the results
contradict is shown as contradicted, one whose results are missing as missing.
"""

import sys
from pathlib import Path

from absl import flags

from experiments.harness import command_line
from experiments.harness.errors import UserError
from experiments.harness.results import load_results
from experiments.harness.run_directory import write_text
from scripts.reports import page
from scripts.reports.contents import findings_of, papers_of

_RESULTS = flags.DEFINE_list("results", ["runs", "results"], "folders of results; the first that has a config wins")
_OUT = flags.DEFINE_string("out", "report", "folder to write index.html and findings.md into")
_ONLY = flags.DEFINE_enum("only", "all", ["all", "findings"], "write both files, or findings.md alone, which is quick")


def _write(argv: list[str]) -> None:
    command_line.parse_flags(argv)
    results, folder = load_results(map(Path, _RESULTS.value)), Path(_OUT.value)
    if not results:
        raise UserError(f"no result below {', '.join(_RESULTS.value)}")
    folder.mkdir(parents=True, exist_ok=True)
    findings = findings_of(results)
    written = {"findings.md": page.markdown(findings, _RESULTS.value)}
    if _ONLY.value == "all":
        written["index.html"] = page.html(papers_of(results, findings), len(results))
    for name, text in written.items():
        write_text(folder / name, text)
        print(folder / name)


if __name__ == "__main__":
    sys.exit(command_line.guarded(_write, sys.argv, cache=False))
