"""Flax modules that own the parameters around an op. The names imported here are the public ones.

A module raises ValueError, at its first call, if a field holds an unknown name (the error lists the known ones) or
shapes do not fit each other. Where they do not fit parameters that are there already, it is Flax's
ScopeParamShapeError. Docstrings name what else is raised.
"""

from kvq_jax.nn.adapter import as_attention_fn
from kvq_jax.nn.alpha import ALPHA_KINDS, Alpha
from kvq_jax.nn.block import Block
from kvq_jax.nn.cmab import CMAB
from kvq_jax.nn.grid import GridAttention
from kvq_jax.nn.heads import attend, merge_heads, split_heads
from kvq_jax.nn.image_encoders import ENCODERS, BatchNorm, ConvEncoder, ResNet12
from kvq_jax.nn.learnable_query import LearnableQueryAttention
from kvq_jax.nn.mixer import Mixer, Op
from kvq_jax.nn.mlp import BIAS_INITS, KERNEL_INITS, MLP, Linear
from kvq_jax.nn.multihead import SCALINGS, MultiHead
from kvq_jax.nn.np_former import FORMERS, Former, NPFormerLayer
from kvq_jax.nn.perceiver import GEGLU, PerceiverAttention, PreNormAttention, PreNormGEGLU
from kvq_jax.nn.pooling import set_mean
from kvq_jax.nn.positions import fourier_features
from kvq_jax.nn.resnet import RESNETS, ResNet
from kvq_jax.nn.set_transformer import ISAB, MAB, PMA, RFF, SAB, SET_FORMS, SetBlock
from kvq_jax.nn.transformer import NORMS, ResidualLayer, TransformerLayer
from kvq_jax.nn.vgg import VGG
