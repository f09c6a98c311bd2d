"""Real data by name and source. A source is always the one asked for: none ever stands in for another.

load('digits', 'digits', None)             bundled with scikit-learn
load('mnist', 'archive', '/data')          original files in /data/mnist or /data, verified by checksum
load('mnist', 'tfds', None)                as prepared by TensorFlow Datasets, read without TensorFlow
"""

import functools

from experiments.data import archive, cifar, digits, manifest, prepared
from experiments.data.dataset import DataSet
from experiments.data.errors import DataError
from kvq_jax.names import choose


def load(name: str, source: str, data_dir: str | None) -> DataSet:
    """Data set `name` ('digits' or a manifest's name, e.g. 'mnist') from `source`, a key of SOURCES.

    data_dir  archive: the folder of the original files, or the one above it; tfds: the folder of prepared data
              (None: TFDS's own); digits: not used
    Raises DataError, one line, for an unknown name or source and for data that is missing, unreadable or altered.
    """
    return choose(SOURCES, source, "data source", DataError)(name, data_dir)


def _digits(name, data_dir):
    del data_dir
    return choose({"digits": digits.load}, name, "data set of source 'digits'", DataError)()


def _archive(name, data_dir):
    return archive.load(manifest.read(name, "archive"), data_dir)


def _tfds(name, data_dir):
    return prepared.load(manifest.read(name, "tfds"), data_dir)


# From the name of a source to function(name, data_dir) -> DataSet.
SOURCES = {"archive": _archive, "digits": _digits, "tfds": _tfds}
# Images of many classes: name of a data set -> function(source, data_dir) -> DataSet.
CLASSIFIED = {"cifar100": cifar.load, "digits": functools.partial(load, "digits")}
