"""A training run from a dataset to a folder: what ``vla_simd train`` does."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
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
from vla_simd_ros.training.batches import Batches
from vla_simd_ros.training.curve import CURVE, draw_curve
from vla_simd_ros.training.demonstrations import (
    Demonstrations,
    Frames,
    held_out_episodes,
    read_demonstrations,
    save_arrays,
)
from vla_simd_ros.training.export import PRETRAINED, export_policy
from vla_simd_ros.training.impact import ImpactConfig, ImpactInputs, ImpactPolicy
from vla_simd_ros.training.recipe import TRAIN_CONFIG, Recipe, RecipeError
from vla_simd_ros.training.statistics import dataset_statistics
from vla_simd_ros.training.text_source import (
    TextSource,
    packaged_encoder,
    read_text_source,
    round_to_bfloat16,
)
from vla_simd_ros.training.trainer import LOG_FILE, Trainer

POLICIES = ("impact", "act")
_STATISTICS = "statistics.npz"
_FRAMES = "frames"
_OPTIMIZER = ("optimizer_lr", "optimizer_lr_backbone", "optimizer_weight_decay")


@dataclass(frozen=True)
class Request:
    """What to train, on what, and where: ``settings`` of config.json, ``training`` of the recipe."""

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


class Session:
    """A run that is ready to train. Raises what is wrong with the request."""

    def __init__(self, request: Request, say: Callable[[str], None]) -> None:
        self._folder = request.folder
        self._say = say
        earlier = _earlier(request)
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
        }
        self._policy = self._make_policy(torch.device(request.device))
        self._trainer = self._make_trainer(data)
        if request.resume:
            self._trainer.resume()
        _write_json(self._folder / TRAIN_CONFIG, self._record)

    @property
    def steps_taken(self) -> int:
        """Steps of this run and those it went on from."""
        return self._trainer.step

    def train(self, *, log_every: int, save_every_s: float) -> Path:
        """Train to the end; returns the folder of the trained policy."""
        trained = sum(p.numel() for p in self._policy.parameters() if p.requires_grad)
        self._say(
            f"{self._record['policy']} of {trained / 1e6:.2f} M trained parameters on "
            f"{self._record['episodes']} episodes, from step {self._trainer.step}"
        )
        try:
            self._trainer.run(self._say, log_every=log_every, save_every_s=save_every_s, saved=self._export)
        except KeyboardInterrupt:
            self._trainer.save()
            self._export()
            self._say(f"stopped at step {self._trainer.step}; --resume goes on from there")
            raise
        return self._folder / PRETRAINED

    def _export(self) -> None:
        files = dict(self._text.tokenizer_files) if self._text else {}
        record = {**self._record, "step": self._trainer.step}
        export_policy(self._folder / PRETRAINED, self._policy, self._config, self._statistics, files, record)
        if (self._folder / LOG_FILE).is_file():
            draw_curve(self._folder / LOG_FILE, self._folder / CURVE)

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

    def _make_trainer(self, data: Demonstrations) -> Trainer:
        device = next(self._policy.parameters()).device
        texts = self._encoded(data.tasks) if self._text else {}
        trained = frozenset(data.episodes) - self._held_out
        training, held_out = (
            Batches(data, episodes, self._statistics, self._recipe, self._config["chunk_size"], texts, device)
            for episodes in (trained, self._held_out)
        )
        settings = {name: float(self._config[name]) for name in _OPTIMIZER}
        return Trainer(self._policy, self._recipe, training, held_out, self._folder, settings)

    def _encoded(self, tasks: tuple[str, ...]) -> dict[str, Tensor]:
        """What the frozen encoder makes of each sentence, and which rows are no padding."""
        assert self._text is not None
        with tempfile.TemporaryDirectory() as folder:
            for name, content in self._text.tokenizer_files.items():
                write_file(Path(folder) / name, content)
            tokenizer = load_tokenizer([Path(folder)], self._config["tokenizer_max_length"])
        ids = [tokenizer.encode(task) for task in tasks]
        longest = max(map(len, ids))
        padded = torch.tensor([row + [0] * (longest - len(row)) for row in ids])
        mask = torch.tensor([[True] * len(row) + [False] * (longest - len(row)) for row in ids])
        device = next(self._policy.parameters()).device
        inputs = ImpactInputs([], None, None, padded.to(device), mask.to(device))
        self._policy.eval()
        with torch.no_grad():
            states = self._policy.model.encode_text(inputs)
        assert states is not None
        return {"text_states": states, "token_mask": mask}


def _earlier(request: Request) -> dict[str, Any]:
    """The record of the run to go on from; empty for a new one, whose folder must not hold another."""
    path = request.folder / TRAIN_CONFIG
    if not request.resume:
        if path.exists():
            raise RecipeError(f"{request.folder}: holds a run already; --resume goes on with it")
        return {}
    if not path.is_file():
        raise RecipeError(f"{path}: no such file, expected the record of an earlier run to go on from")
    earlier: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if earlier["policy"] != request.policy:
        raise RecipeError(f"{path}: is of a run of {earlier['policy']}, expected {request.policy}")
    return earlier


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


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
