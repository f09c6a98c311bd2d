"""What each output of a published model is in ours: functions of (model, inputs), by the names of tests/golden.

`inputs` are those of the case: x, y of context (c) and targets (t), and fixed draws.
"""

import functools

import jax
import jax.numpy as jnp

from kvq_jax.models import Points, join
from kvq_jax.models.neural_processes import bootstrap, latent, predictive
from kvq_jax.models.neural_processes.tnp import TNPA
from kvq_jax.ops import OPS, masks


def sides(inputs):
    """Context and targets."""
    return Points(inputs["xc"], inputs["yc"]), Points(inputs["xt"], inputs["yt"])


def moments(prediction):
    return dict(mean=prediction.mean, std=jnp.sqrt(prediction.variance))


def prefixed(prefix, found):
    return {f"{prefix}{name}": value for name, value in found.items()}


def draws_of(inputs):
    """What the model would draw for its loss: noise, indices of bootstraps, or nothing."""
    if "eps_train" in inputs:
        return (inputs["eps_train"],)
    return (bootstrap.Draws(inputs["boot_idx"], inputs["res_idx"][0]),) if "boot_idx" in inputs else ()


def train_loss(model, inputs):
    draws, (context, target) = draws_of(inputs), sides(inputs)
    return (model.train_loss(context, join(context, target), *draws) if draws else model.loss(context, target)).mean()


def of_sides(log_likelihood, inputs, suffix=""):
    """Means over context and over targets of a value for each point [B, N + M]."""
    size = inputs["xc"].shape[1]
    return {
        f"eval_ctx_ll{suffix}": log_likelihood[:, :size].mean(),
        f"eval_tar_ll{suffix}": log_likelihood[:, size:].mean(),
    }


def pooled(encoding):
    """What a pooling gives, without its axis of one point; else as it is."""
    return encoding[:, 0] if encoding.shape[1] == 1 else encoding


def unbound(model, method, *args, **changes):
    """A method of the model with fields changed."""
    return model.clone(**changes).apply(model.variables, *args, method=method)


def of_cnp(model, inputs):
    context, target = sides(inputs)
    x, y = join(context, target)[:2]
    encodings = zip(("enc1", "enc2"), model.encode(context, x))
    prediction = model(context, x)
    log_likelihood = prediction.log_prob(y)
    return {
        **{name: pooled(encoding) for name, encoding in encodings},
        **prefixed("all_", moments(prediction)),
        **of_sides(log_likelihood, inputs),
        "all_ll": log_likelihood,
    }


def of_np(model, inputs):
    context, target = sides(inputs)
    x, y = join(context, target)[:2]
    noise, samples = {"train": inputs["eps_train"], "eval": inputs["eps_eval"]}, len(inputs["eps_train"])
    representation, summary = model.encode(context, x)
    of_z = {"eval": model.z_given(summary), "train": model.z_given(model.pooling(x, y))}
    z = {phase: latent.reparametrised(of_z[phase], noise[phase]) for phase in noise}
    decoded = {phase: model.decode((representation, z[phase][..., None, :]), x) for phase in noise}
    of_sample = predictive.log_prob(predictive.factorised(*decoded["train"]), y, None)

    def bound(name, values, z):
        return latent.OBJECTIVES[name](values, z, of_z["eval"], of_z["train"])

    of_point = model.predict(context, x, noise["eval"]).log_prob(y)
    one = functools.partial(unbound, model, "train_loss", context, join(context, target), noise["train"][:1])
    return {
        "denc": pooled(representation),
        **prefixed("pz_", moments(of_z["eval"])),
        **prefixed("qz_", moments(of_z["train"])),
        **{f"z_{phase}": z[phase] for phase in z},
        **{f"{phase}_all_{name}": value for phase in z for name, value in zip(("mean", "std"), decoded[phase])},
        "kl_qz_pz": -bound("elbo", 0 * of_sample, z["train"]),
        "log_w": jnp.stack([bound("importance", of_sample[k : k + 1], z["train"][k : k + 1]) for k in range(samples)]),
        "train_loss_elbo_K1": one(objective="elbo").mean(),
        f"eval_all_ll_K{samples}": of_point,
        **of_sides(of_point, inputs, f"_K{samples}"),
    }


def of_bnp(model, inputs):
    context, target = sides(inputs)
    x, y = join(context, target)[:2]
    (draws,) = draws_of(inputs)
    pairs = Points(*(bootstrap.resample(rows, draws.points) for rows in context[:2]))
    of_pairs = model.decode(model.encode(pairs, context.x), context.x)
    base = predictive.factorised(*model.decode(model.encode(context, x), x))
    mixture = model.predict(context, x, draws)
    components = {name: jnp.moveaxis(v, -2, 0) for name, v in moments(mixture.component_distribution).items()}
    log_likelihood = mixture.log_prob(y)
    return {
        "boot_xc": pairs.x,
        "boot_yc": pairs.y,
        **prefixed("res_", dict(zip(("mean", "std"), of_pairs))),
        "boot_y_residual": model.bootstrap(context, draws).y,
        **prefixed("base_all_", moments(base)),
        **prefixed("bs_all_", components),
        "ll_base": base.log_prob(y).mean(),
        "ll_bs": log_likelihood.mean(),
        **of_sides(log_likelihood, inputs),
    }


def of_tnp(model, inputs):
    context, target = sides(inputs)
    _, encoding = model.judged(context, target) if isinstance(model, TNPA) else model.encode(context, target.x)
    mean, std = model.moments(encoding)
    return dict(
        attn_allowed=allowed(model, context, target),
        target_encoding=encoding,
        mean=mean,
        std=std,
        tar_ll_pp=predictive.factorised(mean, std).log_prob(target.y),
        eval_tar_ll=model.log_likelihood(context, target).mean(),
    )


def allowed(model, context, target):
    """Which token attends to which: the mean of the masks that reach the op, over layers, tasks and heads."""
    seen = []

    def op(query, key, value, *, mask=None):
        whole = jnp.ones((*key.shape[:-2], query.shape[-2], key.shape[-2]))
        mask = masks.resolve(query, key, value, mask)
        pairs = whole if mask is None else mask * whole
        others = query.shape[-2] - key.shape[-2]
        seen.append(jnp.pad(pairs, [(0, 0)] * (pairs.ndim - 1) + [(0, others)]))
        return OPS["softmax"](query, key, value, mask=mask)

    with jax.disable_jit():  # every layer runs, and what it sees is of the program around it
        unbound(model, "log_likelihood", context, target, op=op)
    assert len(seen) == model.num_layers
    return jnp.mean(jnp.stack(seen), axis=(0, 1, 2))


def of_head(model, encoding, target):
    """What all models with a joint head have in common."""
    prediction = model.head(encoding)
    mixed = model.head.std_encoder(encoding)
    form = "scale_tril" if model.covariance == "cholesky" else "covariance"
    return {
        "target_encoding": encoding,
        "mean": prediction.mean,
        form: prediction.scale_tril if model.covariance == "cholesky" else prediction.covariance_matrix,
        "std_encoder_out": mixed,
        "projected": model.head.projector(mixed),
        "joint_ll": predictive.log_prob(prediction, target.y, None),
    }


def of_tnpnd(model, inputs):
    context, target = sides(inputs)
    found = of_head(model, model.encode(context, target.x)[1], target)
    return found | dict(eval_tar_ll=model.log_likelihood(context, target).mean())


def of_levels(model, levels, target):
    encoding = model.decode(levels, target.x)
    prediction = model.predict(encoding, None)
    found = {f"ctx_layer{i}": level for i, (level, _) in enumerate(levels)} | moments(prediction)
    return found, dict(target_encoding=encoding, tar_ll_pp=prediction.log_prob(target.y))


def of_lbanp(model, inputs):
    context, target = sides(inputs)
    found, more = of_levels(model, model.levels(context), target)
    return found | more | dict(eval_tar_ll=model.log_likelihood(context, target).mean())


def of_cmanp(model, inputs):
    context, target = sides(inputs)
    state = model.update(model.init_state(context.x.shape[:1]), context)
    found = of_lbanp(model, inputs)
    for i, block in enumerate(state):  # theirs: tasks and heads on one axis
        tasks, heads, *rows = block.average.shape
        found[f"state{i}_logc"] = block.log_normaliser.reshape(tasks * heads, rows[0], 1)
        found[f"state{i}_emb"] = block.average.reshape(tasks * heads, *rows)
    updated, _ = of_levels(model, model.finish(model.update(state, target)), target)
    return found | prefixed("after_update_", updated)


def of_lbanpnd(model, inputs):
    context, target = sides(inputs)
    found = of_head(model, model.decode(model.levels(context), target.x), target)
    return found | dict(eval_tar_ll=model.log_likelihood(context, target).mean())


def of_cmanpand(model, inputs):
    context, target = sides(inputs)
    found = of_head(model, model.decode(model.levels(context), target.x), target)
    for size in (1, 2, 5):
        of_blocks = unbound(model, "log_likelihood", context, target, block_size=size)
        found[f"eval_tar_ll_block{size}"] = of_blocks.mean()
    return found


OUTPUTS = dict(  # published class -> (model, inputs) -> outputs
    cnp=of_cnp,
    canp=of_cnp,
    np=of_np,
    anp=of_np,
    bnp=of_bnp,
    banp=of_bnp,
    tnpd=of_tnp,
    tnpa=of_tnp,
    tnpnd=of_tnpnd,
    eqtnp=of_lbanp,
    lbanp=of_lbanp,
    lbanpnd=of_lbanpnd,
    cmanp=of_cmanp,
    cmanpand=of_cmanpand,
)
