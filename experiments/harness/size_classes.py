"""Size classes: a few static shapes for tasks of many sizes, so that a step computes for the points there are.

The published protocols draw N context points and M targets for each batch. A compiled program has static shapes, its
slots. One shape for all sizes wastes most of its work, and one for each size is a thousand programs. A few classes,
chosen for the law of (N, M), come near to the least work: a step draws a size and computes in the cheapest class that
holds it. Masks hide the slots that are empty.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Slots = tuple[int, int]  # of context and targets
Size = tuple[jax.Array, jax.Array]  # numbers of context points and targets
_CANDIDATES = 20  # numbers of slots that are tried in each direction


class Law(NamedTuple):
    """The L sizes that a protocol draws, and how often."""

    context: np.ndarray  # [L]
    target: np.ndarray  # [L]
    probability: np.ndarray  # [L], sums to 1

    @property
    def slots(self) -> Slots:
        """Slots that hold every size."""
        return int(self.context.max()), int(self.target.max())

    @property
    def points(self) -> float:
        """The expected number of points, N + M."""
        return float((self.context + self.target) @ self.probability)

    def draw(self, key: jax.Array) -> jax.Array:
        """The index of a size, []."""
        below = jnp.asarray(np.cumsum(self.probability)[:-1], jnp.float32)
        return jnp.searchsorted(below, jax.random.uniform(key), side="right")

    def size(self, index: jax.Array) -> Size:
        """The size with an index [...]."""
        return jnp.asarray(self.context)[index], jnp.asarray(self.target)[index]


@dataclasses.dataclass(frozen=True)
class UniformLaw:
    """N uniform among consecutive numbers, then M uniform in a range that depends on it: a Law drawn by arithmetic.

    A program holds one number for each N, where Law has three for each size: of 1600 points there are a million sizes.

    Attributes:
      min_context: the least N.
      min_targets: the least M, whatever N is.
      most_targets: the largest M beside min_context, min_context + 1, ... context points.
    """

    min_context: int
    min_targets: int
    most_targets: tuple[int, ...]

    @property
    def slots(self) -> Slots:
        """Slots that hold every size."""
        return self.min_context + len(self.most_targets) - 1, max(self.most_targets)

    @property
    def points(self) -> float:
        """The expected number of points, N + M."""
        context = self.min_context + (len(self.most_targets) - 1) / 2
        return context + (self.min_targets + np.mean(self.most_targets)) / 2

    @property
    def context(self) -> np.ndarray:
        return self._table.context

    @property
    def target(self) -> np.ndarray:
        return self._table.target

    @property
    def probability(self) -> np.ndarray:
        return self._table.probability

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
        return self.min_context + row, self.min_targets + index - before[row]

    @property
    def _before(self) -> np.ndarray:
        """The number of sizes with fewer context points, and of all, [len(most_targets) + 1]."""
        return np.cumsum([0, *(most - self.min_targets + 1 for most in self.most_targets)])

    @functools.cached_property
    def _table(self) -> Law:
        counts = np.diff(self._before)
        row = np.repeat(np.arange(len(counts)), counts)
        target = self.min_targets + np.arange(len(row)) - self._before[row]
        return Law(self.min_context + row, target, 1 / (len(counts) * counts[row]))


class SizeClasses(NamedTuple):
    """The classes of a law: slots, the cheapest first. The last class holds every size."""

    law: Law | UniformLaw
    classes: tuple[Slots, ...]

    @property
    def waste(self) -> float:
        """Expected slots over expected points; 1 is none."""
        slots = np.sum(self.classes, 1)[self._of_size()]
        return float(slots @ self.law.probability / self.law.points)

    @property
    def probabilities(self) -> np.ndarray:
        """How often each class is used."""
        return np.bincount(self._of_size(), self.law.probability, len(self.classes))

    def switch(self, key: jax.Array, function: Callable[[Slots, Size | None], Any]) -> Any:
        """function(slots, size) for a size drawn from `key` and the slots of its class.

        The size is None where the class has one size, which fills its slots: no masks are needed. The key must not
        depend on a mapped axis: `vmap` would compute every class.
        """
        of_size, sizes = self._of_size(), np.stack([self.law.context, self.law.target], 1)

        def branch(number: int, slots: Slots) -> Callable[[Size], Any]:
            members = sizes[of_size == number]
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
        with jax.ensure_compile_time_eval():
            keys = jax.random.split(key, tasks)
            drawn = np.asarray(jax.vmap(lambda key: self.law.draw(jax.random.fold_in(key, 0)))(keys))
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
        return np.argmax(_holds(np.asarray(self.classes), self.law), 0)


class Sizes(NamedTuple):
    """How the tasks of an experiment get their sizes.

    Attributes:
      classes: the size classes of batches.
      fill: (what is random in a task, slots, size or None: all slots are points) -> the task in arrays of the slots.
    """

    classes: SizeClasses
    fill: Callable[[Any, Slots, Size | None], Any]


def choose_classes(law: Law | UniformLaw, count: int) -> SizeClasses:
    """At most `count` classes, one at least, with few expected slots.

    One class after the other is added, each the best beside the others; after each, all are exchanged for better ones
    until there are none.
    """
    sides = law.context, law.target
    candidates = [_quantiles(values, law.probability) for values in sides]
    slots = np.stack(np.meshgrid(*candidates, indexing="ij"), -1).reshape(-1, 2)
    # The law of the least candidate that holds a size: to the classes the size and the candidate are the same.
    least = np.ravel_multi_index(
        [np.searchsorted(known, values) for known, values in zip(candidates, sides)], list(map(len, candidates))
    )
    law_of_slots = Law(*slots.T, np.bincount(least, law.probability, len(slots)))
    cost = np.where(_holds(slots, law_of_slots), slots.sum(1, keepdims=True), np.inf)  # [candidates, candidates]
    chosen = [len(slots) - 1]  # the largest of both

    def best_beside(others: Sequence[int]) -> int:
        return int(np.argmin(np.minimum(cost, cost[others].min(0)) @ law_of_slots.probability))

    while len(chosen) < count:
        chosen.append(best_beside(chosen))
        before = None
        while chosen != before:
            before = list(chosen)
            for place in range(1, len(chosen)):
                chosen[place] = best_beside(chosen[:place] + chosen[place + 1 :])
    classes = {tuple(map(int, slots[index])) for index in chosen}
    return SizeClasses(law, tuple(sorted(classes, key=lambda of: (sum(of), of))))


def _holds(slots: np.ndarray, law: Law | UniformLaw) -> np.ndarray:
    """Whether slots [K, 2] hold the sizes of a law, [K, L]."""
    return (slots[:, :1] >= law.context) & (slots[:, 1:] >= law.target)


def _quantiles(values: np.ndarray, probability: np.ndarray) -> np.ndarray:
    """At most _CANDIDATES of the values, about equally likely between each two; the largest is among them."""
    known, index = np.unique(values, return_inverse=True)
    below = np.cumsum(np.bincount(index, probability))
    found = np.searchsorted(below, np.linspace(0, 1, _CANDIDATES + 1)[1:-1])
    return known if len(known) <= _CANDIDATES else known[np.unique([*found, len(known) - 1])]
