"""The predictive distributions of numpyro with a `stddev`, which numpyro's own lack."""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist


def at_least_float32(x: jax.Array) -> jax.Array:
    """What a density is made of: in fewer digits log-probabilities of many points would say nothing."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


class _WithStddev:
    @property
    def stddev(self) -> jax.Array:
        """The standard deviation of each number that is predicted, in the shape of `mean`."""
        return jnp.sqrt(self.variance)


class FactorisedNormal(_WithStddev, dist.Independent):
    """Independent normals; made as numpyro's Independent."""


class Mixture(_WithStddev, dist.MixtureSameFamily):
    """A mixture of distributions of one family; made as numpyro's MixtureSameFamily."""


class JointNormal(_WithStddev, dist.MultivariateNormal):
    """A multivariate normal; made as numpyro's MultivariateNormal."""


class LowRankNormal(_WithStddev, dist.LowRankMultivariateNormal):
    """A multivariate normal with a covariance of low rank beside its diagonal; made as numpyro's."""
