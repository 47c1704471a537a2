"""A training run from a dataset to a folder: what ``vla_simd train`` does."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from vla_simd_ros.checkpoints.checkpoint import DEFAULT_MAX_TOKENS
from vla_simd_ros.checkpoints.synthesis import Camera, Options
from vla_simd_ros.checkpoints.synthesis.act import finished_act_config
from vla_simd_ros.checkpoints.synthesis.folder import write_file
from vla_simd_ros.checkpoints.synthesis.impact import impact_config
from vla_simd_ros.checkpoints.tokenizer import load_tokenizer
from vla_simd_ros.control.query_timing import Pacing
from vla_simd_ros.training.batches import Batch, Batches
from vla_simd_ros.training.demonstrations import (
    Demonstrations,
    Frames,
    held_out_episodes,
    read_demonstrations,
    save_arrays,
)
from vla_simd_ros.training.export import export_policy
from vla_simd_ros.training.impact import ImpactConfig, ImpactPolicy
from vla_simd_ros.training.objectives import ActionChunks
from vla_simd_ros.training.recipe import Recipe
from vla_simd_ros.training.run import Run, Say, device_of, earlier_record, usable_device
from vla_simd_ros.training.sentences import encode_sentences
from vla_simd_ros.training.statistics import dataset_statistics
from vla_simd_ros.training.text_source import (
    TextSource,
    packaged_encoder,
    read_text_source,
    round_to_bfloat16,
)
from vla_simd_ros.training.trainer import Trainer

POLICIES = ("impact", "act")
_STATISTICS = "statistics.npz"
_FRAMES = "frames"
_OPTIMIZER = ("optimizer_lr", "optimizer_lr_backbone", "optimizer_weight_decay")


@dataclass(frozen=True)
class Request:
    """What to train, on what, and where: ``settings`` of config.json, ``training`` of the recipe.

    ``pacing`` is when the trained policy wants to be queried, None where nothing is said of it.
    """

    policy: str
    dataset: Frames
    data: Sequence[str]
    folder: Path
    settings: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    text_encoder: Path | None = None
    image_size: tuple[int, int] | None = None
    cache: Path | None = None
    resume: bool = False
    device: str = "cpu"
    pacing: Pacing | None = None


class Session(Run):
    """A run that is ready to train. Raises what is wrong with the request."""

    def __init__(self, request: Request, say: Say) -> None:
        self._folder = request.folder
        self._say = say
        device = usable_device(request.device)
        earlier = earlier_record(request.folder, request.policy, request.resume)
        self._recipe = Recipe.from_json({**earlier.get("training", {}), **request.training})
        settings = {**earlier.get("settings", {}), **request.settings}
        size = request.image_size or earlier.get("image_size")
        self._folder.mkdir(parents=True, exist_ok=True)
        data = read_demonstrations(
            request.dataset,
            request.cache or self._folder / _FRAMES,
            say,
            stride=self._recipe.frame_stride,
            size=tuple(size) if size else None,
        )
        self._text = _text_source(request, earlier, settings, data)
        self._config = _policy_config(request.policy, data, settings, self._text)
        self._held_out = held_out_episodes(data.episodes, self._recipe.held_out, self._recipe.seed)
        self._statistics = self._read_statistics(request.resume, data)
        self._record: dict[str, Any] = {
            "policy": request.policy,
            "data": list(request.data),
            "episodes": len(data.episodes) - len(self._held_out),
            "held_out_episodes": sorted(self._held_out),
            "frames": len(data.episode),
            "image_size": list(size) if size else None,
            "text_encoder": str(request.text_encoder) if request.text_encoder else None,
            "settings": settings,
            "training": asdict(self._recipe),
            "execution": self._execution(request.pacing, earlier),
        }
        self._policy = self._make_policy(device)
        self._trainer = self._make_trainer(data)
        self._begin(request.resume)

    def _write_policy(self, folder: Path, record: Mapping[str, Any]) -> None:
        files = dict(self._text.tokenizer_files) if self._text else {}
        export_policy(folder, self._policy, self._config, self._statistics, {**files, **self._told()}, record)

    def _read_statistics(self, resume: bool, data: Demonstrations) -> dict[str, npt.NDArray[np.float32]]:
        """Those of the run's beginning: what was learned since holds in their units only."""
        path = self._folder / _STATISTICS
        if resume and path.is_file():
            with np.load(path) as stored:
                return dict(stored)
        trained = ~np.isin(data.episode, list(self._held_out))
        statistics = dataset_statistics(data, trained)
        save_arrays(path, statistics)
        return statistics

    def _make_policy(self, device: torch.device) -> ImpactPolicy:
        torch.manual_seed(self._recipe.seed)
        config = ImpactConfig.from_json(self._config, self._text.config if self._text else None)
        policy = ImpactPolicy(config, nn.BatchNorm2d)
        _initialize_backbone(policy.model.backbone)
        if self._text is not None:
            rounded = {k: torch.from_numpy(round_to_bfloat16(v)) for k, v in self._text.weights.items()}
            policy.model.text["model"].load_state_dict(rounded)
        policy.model.backbone.to(memory_format=torch.channels_last)
        return policy.to(device)

    def _make_trainer(self, data: Demonstrations) -> Trainer[Batch]:
        device = device_of(self._policy)
        texts = self._encoded(data.tasks) if self._text else {}
        trained = frozenset(data.episodes) - self._held_out
        training, held_out = (
            Batches(data, episodes, self._statistics, self._recipe, self._config["chunk_size"], texts, device)
            for episodes in (trained, self._held_out)
        )
        settings = {name: float(self._config[name]) for name in _OPTIMIZER}
        objective = ActionChunks(self._policy)
        return Trainer(objective, self._recipe, training, held_out, self._folder, settings)

    def _encoded(self, tasks: tuple[str, ...]) -> dict[str, Tensor]:
        """What the frozen encoder makes of each sentence, and which rows are no padding."""
        assert self._text is not None
        with tempfile.TemporaryDirectory() as folder:
            for name, content in self._text.tokenizer_files.items():
                write_file(Path(folder) / name, content)
            tokenizer = load_tokenizer([Path(folder)], self._config["tokenizer_max_length"])
        self._policy.eval()
        return encode_sentences(self._policy.model, tokenizer, tasks)


def _text_source(
    request: Request, earlier: Mapping[str, Any], settings: Mapping[str, Any], data: Demonstrations
) -> TextSource | None:
    if request.policy == "act":
        return None
    given = request.text_encoder or earlier.get("text_encoder")
    longest = int(settings.get("tokenizer_max_length", DEFAULT_MAX_TOKENS))
    return read_text_source(Path(given) if given else packaged_encoder(), data.tasks, longest)


def _policy_config(
    policy: str, data: Demonstrations, settings: Mapping[str, Any], text: TextSource | None
) -> dict[str, Any]:
    """config.json of the policy to train."""
    cameras = tuple(Camera(name, *images.shape[1:3]) for name, images in data.images.items())
    own = {f"text_config.{name}": value for name, value in text.config.items()} if text else {}
    options = Options(
        cameras=cameras,
        state_dim=data.state.shape[1],
        action_dim=data.action.shape[1],
        settings={**own, **settings},
    )
    return finished_act_config(options) if policy == "act" else impact_config(options)


def _initialize_backbone(backbone: nn.Module) -> None:
    """As networks of this kind are begun where nothing is known."""
    for module in backbone.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
