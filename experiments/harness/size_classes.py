"""Size classes: a few static shapes for tasks of many sizes, so that a step computes for the points there are.

The published protocols draw N context points and M targets for each batch. A compiled program has static shapes, its
slots. One shape for all sizes wastes most of its work, and one for each size is a thousand programs. A few classes,
chosen for the law of (N, M), come near to the least work: a step draws a size and computes in the cheapest class that
holds it. Masks hide the slots that are empty.

A model that reads context and targets alike takes all N + M points in one array, the context first. Its classes are of
(N, N + M), the law `of_points`: fewer of them waste less, since the sum varies less than its parts.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Slots = tuple[int, int]  # of context and targets, or of context and all points
Size = tuple[jax.Array, jax.Array]  # numbers of context points and targets, or of all points
Costs = tuple[float, float]  # of a slot of either kind
_CANDIDATES = 20  # numbers of slots that are tried in each direction


@dataclasses.dataclass(frozen=True)
class Law:
    """The sizes that a protocol draws: N uniform among consecutive numbers, then M uniform in a range that N leaves.

    Sizes have an index, 0 to L - 1. They are drawn by arithmetic: of 1600 points there are a million sizes.

    Attributes:
      min_context: the least N.
      min_targets: the least M, whatever N is.
      most_targets: the largest M beside min_context, min_context + 1, ... context points.
      in_one: the second number of a size is N + M, not M.
    """

    min_context: int
    min_targets: int
    most_targets: tuple[int, ...]
    in_one: bool = False

    @property
    def of_points(self) -> "Law":
        """The law of (N, N + M)."""
        return dataclasses.replace(self, in_one=True)

    @property
    def slots(self) -> Slots:
        """Slots that hold every size."""
        return tuple(map(int, self.sizes.max(0)))

    def draw(self, key: jax.Array) -> jax.Array:
        """The index of a size, []."""
        of_context, of_target = jax.random.split(key)
        row = jax.random.randint(of_context, (), 0, len(self.most_targets))
        before = jnp.asarray(self._before, jnp.int32)
        return jax.random.randint(of_target, (), before[row], before[row + 1])

    def size(self, index: jax.Array) -> Size:
        """The size with an index [...]."""
        before = jnp.asarray(self._before, jnp.int32)
        row = jnp.searchsorted(before, index, side="right").astype(jnp.int32) - 1
        context, target = self.min_context + row, self.min_targets + index - before[row]
        return context, target + self.in_one * context

    @functools.cached_property
    def sizes(self) -> np.ndarray:
        """All sizes in order, [L, 2]."""
        row = np.repeat(np.arange(len(self.most_targets)), self._counts)
        context, target = self.min_context + row, self.min_targets + np.arange(len(row)) - self._before[row]
        return np.stack([context, target + self.in_one * context], 1)

    @functools.cached_property
    def probability(self) -> np.ndarray:
        """How often each size is drawn, [L]."""
        return np.repeat(1 / (len(self._counts) * self._counts), self._counts)

    @property
    def _counts(self) -> np.ndarray:
        """The number of sizes with each number of context points."""
        return np.array(self.most_targets) - self.min_targets + 1

    @property
    def _before(self) -> np.ndarray:
        """The number of sizes with fewer context points, and of all, [len(most_targets) + 1]."""
        return np.cumsum([0, *self._counts])


class SizeClasses(NamedTuple):
    """The classes of a law: slots, the cheapest first. The last class holds every size."""

    law: Law
    classes: tuple[Slots, ...]
    costs: Costs = (1.0, 1.0)

    @property
    def waste(self) -> float:
        """Expected cost of the slots over that of the points there are; 1 is none."""
        slots = np.asarray(self.classes)[self._of_size()]
        spent, needed = (self.law.probability @ held @ self.costs for held in (slots, self.law.sizes))
        return float(spent / needed)

    @property
    def probabilities(self) -> np.ndarray:
        """How often each class is used."""
        return np.bincount(self._of_size(), self.law.probability, len(self.classes))

    def switch(self, key: jax.Array, function: Callable[[Slots, Size | None], Any]) -> Any:
        """function(slots, size) for a size drawn from `key` and the slots of its class.

        The size is None where the class has one size, which fills its slots: no masks are needed. The key must not
        depend on a mapped axis: `vmap` would compute every class.
        """
        of_size = self._of_size()

        def branch(number: int, slots: Slots) -> Callable[[Size], Any]:
            members = self.law.sizes[of_size == number]
            full = len(members) and np.all(members == slots)
            return lambda size: function(slots, None if full else size)

        size = self.law.size(self.law.draw(key))
        held = jnp.all(jnp.asarray(self.classes) >= jnp.stack(size), 1)
        branches = [branch(number, slots) for number, slots in enumerate(self.classes)]
        return jax.lax.switch(jnp.argmax(held), branches, size)

    def map(
        self,
        function: Callable[[jax.Array, Any, Slots, Size], Any],
        draw: Callable[..., Any],
        key: jax.Array,
        tasks: int,
        batch_size: int,
        given: Any = (),
    ) -> Any:
        """function(key, draw(key), slots, size) of each of `tasks` tasks, with a size of its own: leaves [tasks, ...].

        With `given`, a tuple of leaves [tasks, ...], it is draw(key, *given of the task). `key` must be known when the
        program is traced: tasks of one class are computed together, at most `batch_size` at once. What is left of the
        smaller classes is computed in the largest.
        """

        @jax.jit
        def of_tasks(key):
            keys = jax.random.split(key, tasks)
            return keys, jax.vmap(lambda key: self.law.draw(jax.random.fold_in(key, 0)))(keys)

        with jax.ensure_compile_time_eval():
            keys, drawn = of_tasks(key)
            drawn = np.asarray(drawn)
        # Once: random numbers are slow to compile.
        random = jax.lax.map(lambda task: draw(*task), (keys, *given), batch_size=batch_size)
        number, last = self._of_size()[drawn], len(self.classes) - 1
        for smaller in range(last):
            members = np.flatnonzero(number == smaller)
            number[members[len(members) - len(members) % batch_size :]] = last
        found, order = [], []
        for of_class, slots in enumerate(self.classes):
            members = np.flatnonzero(number == of_class)
            if len(members):
                own = jax.tree.map(lambda leaf, members=members: leaf[members], (keys, random))
                one = lambda task, slots=slots: function(*task[0], slots, task[1])
                given = own, self.law.size(drawn[members])
                found.append(jax.lax.map(one, given, batch_size=batch_size))
                order.append(members)
        place = np.argsort(np.concatenate(order))
        return jax.tree.map(lambda *parts: jnp.concatenate(parts)[place], *found)

    def _of_size(self) -> np.ndarray:
        """The class of each size, [L]: the cheapest that holds it."""
        return np.argmax(_holds(np.asarray(self.classes), self.law.sizes), 0)


class Sizes(NamedTuple):
    """How the tasks of an experiment get their sizes.

    Attributes:
      classes: the size classes of batches, or what has their `switch` and `waste`: length_classes.LengthClasses.
      fill: (what is random in a task, slots, size or None: all slots are points) -> the task in arrays of the slots.
    """

    classes: SizeClasses
    fill: Callable[[Any, Slots, Size | None], Any]


def choose_classes(law: Law, count: int, costs: Costs = (1.0, 1.0)) -> SizeClasses:
    """At most `count` classes, one at least, of little expected cost.

    One class after the other is added, each the best beside the others; after each, all are exchanged for better ones
    until there are none.
    """
    candidates = [_quantiles(numbers, law.probability) for numbers in law.sizes.T]
    slots = np.stack(np.meshgrid(*candidates, indexing="ij"), -1).reshape(-1, 2)
    # The probability of the least candidate that holds a size: to the classes the size and the candidate are the same.
    least = np.ravel_multi_index(
        [np.searchsorted(known, numbers) for known, numbers in zip(candidates, law.sizes.T)], list(map(len, candidates))
    )
    probability = np.bincount(least, law.probability, len(slots))
    cost = np.where(_holds(slots, slots), (slots @ costs)[:, None], np.inf)  # [candidates, candidates]
    chosen = [len(slots) - 1]  # the largest of both

    def best_beside(others: Sequence[int]) -> int:
        return int(np.argmin(np.minimum(cost, cost[others].min(0)) @ probability))

    while len(chosen) < count:
        chosen.append(best_beside(chosen))
        before = None
        while chosen != before:
            before = list(chosen)
            for place in range(1, len(chosen)):
                chosen[place] = best_beside(chosen[:place] + chosen[place + 1 :])
    classes = {tuple(map(int, slots[index])) for index in chosen}
    if law.in_one:  # no size has more context than points: a class may have such slots, which hold nothing
        classes = {(min(context, points), points) for context, points in classes}
    return SizeClasses(law, tuple(sorted(classes, key=lambda of: (np.dot(of, costs), of))), costs)


def _holds(slots: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Whether slots [K, 2] hold sizes [L, 2], [K, L]."""
    return (slots[:, :1] >= sizes[:, 0]) & (slots[:, 1:] >= sizes[:, 1])


def _quantiles(values: np.ndarray, probability: np.ndarray) -> np.ndarray:
    """At most _CANDIDATES of the values, about equally likely between each two; the largest is among them."""
    known, index = np.unique(values, return_inverse=True)
    below = np.cumsum(np.bincount(index, probability))
    found = np.searchsorted(below, np.linspace(0, 1, _CANDIDATES + 1)[1:-1])
    return known if len(known) <= _CANDIDATES else known[np.unique([*found, len(known) - 1])]
