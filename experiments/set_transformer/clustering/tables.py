"""Table 3 of the Set Transformer and its table of large sets, amortised clustering; and the table of one run."""

import functools
from collections.abc import Mapping, Sequence

from experiments.harness.results import Result, comparable, facts, overridden, seeds_by_name, steps_by_name
from experiments.harness.tables import BEST, Cell, Table, mark_best, measured, over_seeds
from experiments.set_transformer.labels import described, label_of, own_op, variant
from experiments.set_transformer.paper_numbers import CLUSTERING, LARGE, ORACLE, printed

CONFIG, VARYING = "set_transformer/clustering", "set_transformer/clusters"
CONFIGS = (CONFIG, VARYING)
# Size of sets -> what the paper has; numbers of clusters that vary are ours.
_PAPER = {"small": CLUSTERING, "large": LARGE, "varying": {ORACLE: (None, None)}}
_METRICS = ("ll0", "ll1", "ari0", "ari1")
ORACLE_ROW = "oracle (the true mixture)"
# Rows that no network fills: name -> the metric in each column of _METRICS, where there is one.
_OTHERS = {ORACLE_ROW: ("ll_oracle", None, "ari_oracle", None), "EM, scikit-learn": ("ll_em", None, "ari_em", None)}


def clustering(results: Sequence[Result], size: str, name: str = CONFIG) -> Table | None:
    """Every model of the paper's table for sets of one size, a key of _PAPER. None without results."""
    own = [result for result in results if result.name == name and _is_own(result, size)]
    found = comparable(own, name, lambda result: result.axes["model"], variant=variant)
    models = [model for model in _PAPER[size] if model != ORACLE]
    return _table(found, [*models, *(model for model in found if model not in models)], size) if found else None


def run_table(result: Result) -> Table:
    """One run: its likelihoods and Rand indices beside the paper's, the oracle's and those of EM."""
    model = result.axes["model"]
    return _table({model: result}, [model], result.axes["size"])


def _table(found: Mapping[str, Result], models: Sequence[str], size: str) -> Table:
    paper, columns, several_models = _PAPER[size], [], len(models) > 1
    for metric in _METRICS:
        summaries = [_metric(found.get(model), metric) for model in models]
        cells = [over_seeds(summary, decimals=4) for summary in summaries]
        columns.append(mark_best(cells, False, list(map(measured, summaries))) if several_models else cells)
    own, best = list(found.values()), f"; {BEST}, over sets and seeds" if several_models else ""
    first = own[0]
    rows = [(name, _others(first, metrics, paper)) for name, metrics in _OTHERS.items()]
    for model, ll0, ll1, ari0, ari1 in zip(models, *columns):
        theirs = paper.get(model, (None, None))
        rows.append((label_of(model), [ll0, printed(theirs[0]), ll1, printed(theirs[1]), ari0, ari1]))
    told, em = facts(own, "trained/ll0"), first.metrics["trained/ms_em"]
    task, evaluation = first.config["task"], first.config["evaluation"]
    fewest = f"{task['min_clusters']} to " if "min_clusters" in task else ""
    batch = first.config["train"]["batch_size"]
    by_name = {label_of(model): result for model, result in found.items()}
    caption = (
        f"{described(first)}; {fewest}{task['clusters']} clusters, {task['min_size']} to {task['max_size']} points; "
        f"{steps_by_name(by_name)} of {batch} sets{overridden(by_name)}. Log-likelihood of a point and adjusted Rand "
        f"index (ARI), by the network (0) and after one step of EM (1): mean over {seeds_by_name(by_name)} and "
        f"{told['n']} sets ± standard deviation of the seeds{best}; the oracle and EM, which have no seeds, ± standard "
        f"error over sets. EM starts {evaluation['em_starts']} times from k-means++, on {em['n']} of the sets, and "
        f"takes {measured(em).text()} ms a set, on the CPU of the run."
    )
    columns = ["model", "LL0", "the paper's", "LL1", "the paper's LL1", "ARI0", "ARI1"]
    return Table("Amortised clustering", columns, rows, caption, error="error", facts=told)


def _others(result: Result, metrics: Sequence[str | None], paper: Mapping) -> list[Cell | str]:
    """The cells of the oracle or of EM, which no seed changes, so that any run has them."""
    ll0, ll1, ari0, ari1 = (_of_sets(result, name) if name else "" for name in metrics)
    theirs = printed(paper[ORACLE][0]) if metrics[0] == "ll_oracle" else "(none)"
    return [ll0, theirs, ll1, "", ari0, ari1]


def _of_sets(result: Result, metric: str) -> Cell:
    return measured(_metric(result, metric), decimals=4)


def _metric(result: Result | None, name: str) -> Mapping | None:
    return result and result.metrics[f"trained/{name}"]


def _is_own(result: Result, size: str) -> bool:
    return result.axes["size"] == size and own_op(result)


TABLES = {
    "set_transformer/table3": functools.partial(clustering, size="small"),
    "set_transformer/large": functools.partial(clustering, size="large"),
    "set_transformer/clusters": functools.partial(clustering, size="varying", name=VARYING),
}
