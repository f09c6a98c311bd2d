"""Length classes: the fewest slots, every sequence as likely as any other, and a batch in the slots of its class."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from experiments.harness.experiment import NO_DATA, Experiment
from experiments.harness.length_classes import LengthClasses, choose_lengths, length_classes
from experiments.harness.size_classes import Sizes
from experiments.harness.step import on_batch

LENGTHS = np.array([1, 1, 1, 2, 3, 3, 7, 8])


def test_classes_by_hand():
    assert choose_lengths(LENGTHS, 1) == (8,)
    assert choose_lengths(LENGTHS, 2) == (3, 8)  # 6 * 3 + 2 * 8 slots
    assert choose_lengths(LENGTHS, 3) == (1, 3, 8)
    assert choose_lengths(LENGTHS, 9) == (1, 2, 3, 7, 8)
    two = length_classes([LENGTHS], 2)
    assert two == LengthClasses((3, 8), (6, 2), 26) and two.waste == pytest.approx(34 / 26)
    assert length_classes([LENGTHS], 9).waste == 1


def test_no_classes_have_fewer_slots():
    rng = np.random.default_rng(0)
    slots = lambda classes, lengths: sum(min(held for held in classes if held >= length) for length in lengths)
    for _ in range(20):
        lengths, count = rng.integers(1, 15, rng.integers(1, 30)), int(rng.integers(1, 6))
        known = np.unique(lengths).tolist()
        every = itertools.combinations(known[:-1], min(count, len(known)) - 1)
        chosen = choose_lengths(lengths, count)
        assert list(chosen) == sorted(set(chosen)) and chosen[-1] == known[-1] and len(chosen) <= count
        assert slots(chosen, lengths) == min(slots((*others, known[-1]), lengths) for others in every)


def test_every_set_of_sequences_has_some_in_every_class():
    """The others may be longer. A class that one of them leaves out joins the next, and to the last the one before."""
    assert length_classes([LENGTHS, np.array([9, 1])], 2) == LengthClasses((3, 9), (6, 2), 26)
    assert length_classes([LENGTHS, np.array([7, 1])], 3).classes == (1, 8)
    assert length_classes([LENGTHS, np.array([1, 2])], 2).classes == (8,)
    assert length_classes([LENGTHS, np.array([8])], 3).classes == (8,)


def test_every_sequence_is_as_likely_as_any_other():
    """Through the step's own sampling of batches: sequence i holds the number i in all its slots."""
    classes = length_classes([LENGTHS], 3)
    members = classes.members(LENGTHS)
    np.testing.assert_array_equal(np.concatenate(members), np.arange(len(LENGTHS)))
    data = tuple(jnp.broadcast_to(jnp.asarray(own)[:, None], (len(own), k)) for own, k in zip(members, classes.classes))
    nothing = dict(init=None, loss=None, evaluate=None, examples=None, data=NO_DATA)
    experiment = Experiment(sample=classes.draw, sizes=Sizes(classes, classes.fill), **nothing)

    def batch(key):
        """The numbers of two sequences, and their slots."""
        read = lambda batch, key: (batch[:, 0], batch.shape[1])
        return on_batch(experiment, read, data, 2, lambda batch: batch, key, jax.random.fold_in(key, 1))

    found, slots = jax.jit(lambda keys: jax.lax.map(batch, keys))(jax.random.split(jax.random.key(0), 3000))
    np.testing.assert_array_equal(
        np.asarray(classes.classes)[np.searchsorted(classes.classes, LENGTHS[found[:, 0]])], slots
    )
    for column in np.asarray(found).T:
        assert scipy.stats.chisquare(np.bincount(column, minlength=len(LENGTHS))).pvalue > 0.01
    used = np.bincount(np.searchsorted(classes.classes, slots), minlength=len(classes.classes)) / len(slots)
    np.testing.assert_allclose(used, classes.probabilities, atol=0.03)
