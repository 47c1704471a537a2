"""Training an action-token policy: from demonstrations behind a trained IMPACT's encoder, or from a teacher.

Only the token layers are trained. What the frozen rest makes of the observations is computed once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vla_simd_ros.checkpoints import Checkpoint, CheckpointError, load_checkpoint
from vla_simd_ros.checkpoints.checkpoint import SHARED_WEIGHTS, shared_folder
from vla_simd_ros.checkpoints.features import FeatureKind
from vla_simd_ros.checkpoints.normalization import NormMode
from vla_simd_ros.checkpoints.processors import read_statistics
from vla_simd_ros.control.query_timing import Pacing
from vla_simd_ros.inference import Policy
from vla_simd_ros.training.batches import Batches
from vla_simd_ros.training.demonstrations import (
    ACTION,
    DataError,
    Demonstrations,
    Frames,
    chunks,
    episode_ends,
    held_out_episodes,
    read_demonstrations,
)
from vla_simd_ros.training.encoded import Encoded, encode_observations
from vla_simd_ros.training.export import export_policy
from vla_simd_ros.training.harvest import harvest
from vla_simd_ros.training.impact_predictor import TEXT_PREFIX, load_weights, stored_weights
from vla_simd_ros.training.impact_tokens import TYPE, ImpactTokensConfig, ImpactTokensPolicy
from vla_simd_ros.training.objectives import ActionTokens, Source
from vla_simd_ros.training.recipe import RecipeError, TokenRecipe
from vla_simd_ros.training.run import Run, Say, device_of, earlier_record, usable_device
from vla_simd_ros.training.sentences import encode_sentences
from vla_simd_ros.training.text_source import round_to_bfloat16, tokenizer_files
from vla_simd_ros.training.token_batches import DemonstratedTokens, TeacherTokens, TokenBatch
from vla_simd_ros.training.token_layers import TokenConfig
from vla_simd_ros.training.trainer import Trainer
from vla_simd_ros.training.trajectories import TrajectoryStore

_FRAMES, _TRAJECTORIES = "frames", "trajectories"
_RATE, _DECAY = "optimizer_lr", "optimizer_weight_decay"
_RATES = {_RATE: 1e-3, _DECAY: 1e-4}
_OWN = {f.name: f.default for f in fields(TokenConfig)} | {"chunk_size": 8, "relative_actions": True}
# Of IMPACT's fields, those of parts that there are not.
_DROPPED = (
    "n_decoder_layers",
    "use_vae",
    "n_vae_encoder_layers",
    "vae_sees_language",
    "kl_weight",
    "temporal_ensemble_coeff",
    "optimizer_lr_backbone",
)
_IMPACT = "impact"
_MOST_BINS = 1 << 15


@dataclass(frozen=True)
class TokensRequest:
    """What to train, on what, and where.

    ``source`` is a trained IMPACT, whose encoder is taken; or, with ``distill``, the action-token policy that
    is the teacher. ``settings`` are fields of config.json, ``training`` those of the recipe. A teacher's
    trajectories are kept in ``trajectories``, or in the run's own folder. ``threads`` are the engine's, with
    which the teacher decodes; ``pacing`` is when the policy wants to be queried. With ``share_weights`` the
    policy is stored without what ``source`` has.
    """

    source: Path
    distill: bool
    dataset: Frames
    data: Sequence[str]
    folder: Path
    settings: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    trajectories: Path | None = None
    cache: Path | None = None
    resume: bool = False
    device: str = "cpu"
    threads: int | None = None
    share_weights: bool = False
    half: bool = False
    pacing: Pacing | None = None


class TokensSession(Run):
    """A run that is ready to train. Raises what is wrong with the request."""

    def __init__(self, request: TokensRequest, say: Say) -> None:
        self._folder = request.folder
        self._say = say
        device = usable_device(request.device)
        earlier = earlier_record(request.folder, TYPE, request.resume)
        self._recipe = TokenRecipe.from_json({**earlier.get("training", {}), **request.training})
        settings = {**earlier.get("settings", {}), **request.settings}
        origin = {"distilled_from" if request.distill else "encoder_of": str(request.source)}
        if earlier and not origin.items() <= earlier.items():
            raise RecipeError(f"{request.folder}: the run there is not {origin}, which --resume expects")
        self._source = _opened(request)
        left = shared_folder(request.source, self._source.config) or request.source
        self._shared = left if request.share_weights else None
        self._half = request.half
        self._config = _config(self._source, settings, request.distill)
        self._statistics = read_statistics(request.source)
        self._folder.mkdir(parents=True, exist_ok=True)
        cache = request.cache or self._folder / _FRAMES
        data = self._demonstrations(request.dataset, cache)
        self._held_out = held_out_episodes(data.episodes, self._recipe.held_out, self._recipe.seed)
        self._record: dict[str, Any] = {
            "policy": TYPE,
            "data": list(request.data),
            **origin,
            "episodes": len(data.episodes) - len(self._held_out),
            "held_out_episodes": sorted(self._held_out),
            "frames": len(data.episode),
            "settings": settings,
            "training": asdict(self._recipe),
            "execution": self._execution(request.pacing, earlier),
        }
        self._policy = self._make_policy(device)
        encoded = self._encoded(data, cache)
        self._trainer = self._make_trainer(*self._tokens(request, data, encoded))
        self._begin(request.resume)

    def _write_policy(self, folder: Path, record: Mapping[str, Any]) -> None:
        files = {**tokenizer_files(self._source.folder), **self._told()}
        export_policy(
            folder, self._policy, self._config, self._statistics, files, record, self._shared, self._half
        )

    def _demonstrations(self, dataset: Frames, cache: Path) -> Demonstrations:
        """The dataset with the pictures that the frozen encoder takes, in its order of cameras."""
        cameras = self._source.cameras
        sizes = {feature.shape[1:] for feature in cameras.values()}
        if len(sizes) != 1:
            raise CheckpointError(f"{self._source.folder}: cameras of sizes {sizes}, expected one size")
        (size,) = sizes
        data = read_demonstrations(
            dataset, cache, self._say, stride=self._recipe.frame_stride, size=(size[0], size[1])
        )
        missing = [name for name in cameras if name not in data.images]
        if missing:
            raise DataError(f"the dataset has no camera '{missing[0]}', it has {', '.join(data.images)}")
        own = {"state": data.state.shape[1], "action": data.action.shape[1]}
        for feature in (*self._source.features_in.values(), *self._source.features_out.values()):
            width = own.get(feature.kind.value.lower())
            if width is not None and feature.shape != (width,):
                raise DataError(f"the dataset's {feature.name} has {width} values, expected {feature.shape}")
        if self._config["relative_actions"] and own["state"] != own["action"]:
            raise RecipeError(
                f"relative_actions is true, expected as many states ({own['state']}) as actions "
                f"({own['action']})"
            )
        return replace(data, images={name: data.images[name] for name in cameras})

    def _make_policy(self, device: torch.device) -> ImpactTokensPolicy:
        torch.manual_seed(self._recipe.seed)
        weights, text_config = stored_weights(self._source)
        policy = ImpactTokensPolicy(ImpactTokensConfig.from_json(self._config, text_config))
        # What is learned from is what is stored: the text encoder in bfloat16.
        for name in filter(lambda name: name.startswith(TEXT_PREFIX), weights):
            weights[name] = torch.from_numpy(round_to_bfloat16(weights[name].numpy()))
        # A teacher has all weights, and maybe others beside them; of IMPACT those of the encoder are taken.
        own = policy.state_dict()
        weights = {name: values for name, values in weights.items() if name in own}
        if self._source.type == _IMPACT:
            weights = {**own, **weights}
        load_weights(policy, weights, self._source)
        return policy.to(device)

    def _encoded(self, data: Demonstrations, cache: Path) -> Encoded:
        self._policy.eval()
        texts = encode_sentences(self._policy.model, self._source.tokenizer(), data.tasks)
        every = frozenset(data.episodes)
        chunk = self._config["chunk_size"]
        batches = Batches(data, every, self._statistics, self._recipe, chunk, texts, device_of(self._policy))
        return encode_observations(self._policy, data, batches, cache, self._say)

    def _tokens(
        self, request: TokensRequest, data: Demonstrations, encoded: Encoded
    ) -> tuple[Source[TokenBatch], Source[TokenBatch]]:
        """What is learned from, and what errors are measured with."""
        if request.distill:
            folder = request.trajectories or self._folder / _TRAJECTORIES
            return self._teacher_tokens(data, encoded, folder, request.threads)
        return self._demonstrated_tokens(data, encoded)

    def _demonstrated_tokens(
        self, data: Demonstrations, encoded: Encoded
    ) -> tuple[DemonstratedTokens, DemonstratedTokens]:
        """Fits the bins to the actions; those of a run that is gone on with come with its state."""
        actions, _ = chunks(data, data.seen, self._config["chunk_size"], episode_ends(data.episode))
        if self._config["relative_actions"]:
            actions = actions - data.state[data.seen][:, None]
        layers, outside = self._policy.model.tokens, self._recipe.action_quantile
        trained, held_out = self._observations(data)
        spread = actions[trained].reshape(-1, actions.shape[-1])
        low, high = np.quantile(spread, [outside, 1 - outside], axis=0).astype(np.float32)
        for joint in np.flatnonzero(low >= high):
            raise DataError(f"action {joint} is always {low[joint]}, expected values that differ")
        layers.action_low.copy_(torch.from_numpy(low))
        layers.action_high.copy_(torch.from_numpy(high))
        training, kept = (
            DemonstratedTokens(encoded, actions, layers, rows, self._recipe) for rows in (trained, held_out)
        )
        return training, kept

    def _teacher_tokens(
        self, data: Demonstrations, encoded: Encoded, folder: Path, threads: int | None
    ) -> tuple[TeacherTokens, TeacherTokens]:
        """Harvests what the folder does not hold yet."""
        record = {
            "teacher": _digest(self._source),
            "observations": len(data.seen),
            "tokens": self._policy.config.token_count,
            "vocabulary": self._policy.config.vocabulary,
            "seed": self._recipe.seed,
        }
        changes: dict[str, Any] = {"threads": threads} if threads else {}
        teacher = Policy.load(self._source.folder, **changes)
        rows = np.arange(len(data.seen))
        trajectories = harvest(
            teacher, data, rows, TrajectoryStore(folder, record), seed=self._recipe.seed, say=self._say
        )
        teacher.close()
        training, held_out = (
            TeacherTokens(encoded, trajectories, self._policy.config, rows, self._recipe)
            for rows in self._observations(data)
        )
        return training, held_out

    def _observations(self, data: Demonstrations) -> tuple[Any, Any]:
        """Those of the episodes to train on, and those held out."""
        held_out = np.isin(data.episode[data.seen], list(self._held_out))
        return np.flatnonzero(~held_out), np.flatnonzero(held_out)

    def _make_trainer(
        self, training: Source[TokenBatch], held_out: Source[TokenBatch]
    ) -> Trainer[TokenBatch]:
        deviation = torch.from_numpy(self._statistics[f"{ACTION}.std"]).to(device_of(self._policy))
        objective = ActionTokens(
            self._policy, deviation, consistency=self._recipe.consistency, omega=self._recipe.omega
        )
        settings = {name: float(self._config[name]) for name in _RATES}
        return Trainer(objective, self._recipe, training, held_out, self._folder, settings)


def _opened(request: TokensRequest) -> Checkpoint:
    source = load_checkpoint(request.source)
    expected = TYPE if request.distill else _IMPACT
    if source.type != expected:
        raise CheckpointError(f"{request.source}: is of type '{source.type}', expected '{expected}'")
    for name, normalizer in source.normalizers.items():
        if normalizer.mode is not NormMode.MEAN_STD:
            raise CheckpointError(
                f"{request.source}: {name} is normalized by {normalizer.mode.value}, expected MEAN_STD"
            )
    return source


def _config(source: Checkpoint, settings: Mapping[str, Any], distill: bool) -> dict[str, Any]:
    """config.json of the policy to train. Raises `RecipeError` for a setting that cannot be."""
    base = source.config if distill else {**source.config, **_OWN, **_RATES}
    allowed = _RATES if distill else {**_OWN, **_RATES, "n_action_steps": 1}
    for name, value in settings.items():
        if name not in allowed:
            raise RecipeError(f"setting '{name}' is unknown here, expected one of {', '.join(allowed)}")
        kind = type(allowed[name])
        if not isinstance(value, int if kind is float else kind) and not isinstance(value, kind):
            raise RecipeError(f"{name} is {value!r}, expected a value like {allowed[name]!r}")
    config = {name: value for name, value in base.items() if name not in (*_DROPPED, SHARED_WEIGHTS)}
    config |= {"type": TYPE, **settings}
    if not distill:
        config["n_action_steps"] = settings.get("n_action_steps", config["chunk_size"])
        # Tokens are spelled in robot units.
        config["normalization_mapping"] = {
            **config["normalization_mapping"], FeatureKind.ACTION.value: NormMode.IDENTITY.value
        }  # fmt: skip
    _check(config)
    return config


def _check(config: Mapping[str, Any]) -> None:
    for name in ("chunk_size", "token_width", "n_token_layers", "token_heads", "token_kv_heads"):
        if config[name] < 1:
            raise RecipeError(f"{name} is {config[name]}, expected 1 or more")
    if config["token_width"] % (2 * config["token_heads"]):
        raise RecipeError(
            f"token_width is {config['token_width']}, expected an even multiple of token_heads, "
            f"{config['token_heads']}"
        )
    if config["token_heads"] % config["token_kv_heads"]:
        raise RecipeError(
            f"token_heads is {config['token_heads']}, expected a multiple of token_kv_heads, "
            f"{config['token_kv_heads']}"
        )
    if not 2 <= config["action_bins"] <= _MOST_BINS:
        raise RecipeError(f"action_bins is {config['action_bins']}, expected 2 to {_MOST_BINS}")
    if not 1 <= config["n_action_steps"] <= config["chunk_size"]:
        raise RecipeError(
            f"n_action_steps is {config['n_action_steps']}, expected 1 to {config['chunk_size']}"
        )


def _digest(checkpoint: Checkpoint) -> str:
    """Of a checkpoint's weights."""
    return hashlib.sha256(checkpoint.weights.path.read_bytes()).hexdigest()[:16]
