"""Length classes: a few static shapes for sequences of many lengths, so that a step computes for the events there are.

Each sequence lies in the class of the fewest slots that hold it. A batch is of one class, which is drawn in proportion
to its training sequences, so that each of them is as likely as any other. Validation takes the same classes as often.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class LengthClasses(NamedTuple):
    """What a step draws its class from; a harness.size_classes.Sizes takes it in place of SizeClasses.

    Attributes:
      classes: slots of each class, increasing.
      counts: training sequences in each, at least one.
      elements: of all these sequences together.
    """

    classes: tuple[int, ...]
    counts: tuple[int, ...]
    elements: int

    @property
    def waste(self) -> float:
        """Slots over what is in them; 1 is none."""
        return float(np.dot(self.classes, self.counts)) / self.elements

    @property
    def probabilities(self) -> np.ndarray:
        """How often each class is used."""
        return np.asarray(self.counts) / sum(self.counts)

    def switch(self, key: jax.Array, function: Callable[[int, None], Any]) -> Any:
        """function(slots, None) for the slots of a class drawn from `key`.

        The key must not depend on a mapped axis: `vmap` would compute every class.
        """
        sequence = jax.random.randint(key, (), 0, sum(self.counts))
        drawn = jnp.searchsorted(jnp.cumsum(jnp.asarray(self.counts)), sequence, side="right")
        branches = [lambda slots=slots: function(slots, None) for slots in self.classes]
        return jax.lax.switch(drawn, branches)

    def draw(self, key: jax.Array, data: Sequence[Any]) -> tuple[Any, ...]:
        """One sequence of each class, uniform: what is random in a task. A batch then takes those of its class.

        Args:
          key: of the task.
          data: of each class, sequences stacked: leaves [n of the class, ...].
        """

        def of_class(stacked):
            number = jax.random.randint(key, (), 0, len(jax.tree.leaves(stacked)[0]))
            return jax.tree.map(lambda leaf: jnp.asarray(leaf)[number], stacked)

        return tuple(map(of_class, data))

    def fill(self, draws: Sequence[Any], slots: int, size: None) -> Any:
        """The sequence of the class that has these slots."""
        return draws[self.classes.index(slots)]

    def members(self, lengths: np.ndarray) -> list[np.ndarray]:
        """The indices of the sequences of each class, of `lengths` [n] that the last class holds."""
        of_sequence = np.searchsorted(self.classes, lengths)
        return [np.flatnonzero(of_sequence == number) for number in range(len(self.classes))]


def choose_lengths(lengths: np.ndarray, count: int) -> tuple[int, ...]:
    """At most `count` numbers of slots, increasing, with the least slots in all for sequences of `lengths` [n].

    A class takes the slots of its longest sequence, so classes are runs of the sorted lengths. The best c classes of
    the shortest lengths are a last run and the best c - 1 of those before it: exact, by dynamic programming.
    """
    known, number = np.unique(lengths, return_counts=True)
    before = np.concatenate([[0], np.cumsum(number)])  # sequences that are shorter than each length, and all of them
    # run[i, j]: slots of one class of lengths i to j - 1
    run = np.where(np.arange(len(known) + 1)[:, None] < np.arange(1, len(known) + 1), 0.0, np.inf)
    run += known * (before[1:] - before[:, None])
    best, last = np.concatenate([[0], np.full(len(known), np.inf)]), []  # of no class: only of no lengths
    for _ in range(min(count, len(known))):
        spent = best[:, None] + run  # [where the last class begins, where it ends]
        last.append(spent.argmin(0))
        best = np.concatenate([[np.inf], spent.min(0)])
    classes, end = [], len(known)
    for begins in reversed(last):
        classes.append(int(known[end - 1]))
        end = int(begins[end - 1])
    return tuple(reversed(classes))


def length_classes(lengths: Sequence[np.ndarray], count: int) -> LengthClasses:
    """At most `count` classes of the least slots for the first of several sets of lengths, that hold all of them.

    A class that holds no sequence of one of the sets is joined with the next: in every set each class has sequences.
    """
    training = lengths[0]
    slots = list(choose_lengths(training, count))
    slots[-1] = max(map(np.max, lengths))
    while True:
        classes = LengthClasses(tuple(map(int, slots)), (), 0)
        empty = {number for own in lengths for number, held in enumerate(classes.members(own)) if not len(held)}
        if not empty:
            counts = tuple(map(len, classes.members(training)))
            return classes._replace(counts=counts, elements=int(training.sum()))
        slots.pop(min(min(empty), len(slots) - 2))
