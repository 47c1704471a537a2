"""The configuration of SmolVLA, read from a checkpoint and checked."""

from __future__ import annotations

from dataclasses import dataclass

from vla_simd_ros.checkpoints.checkpoint import Checkpoint
from vla_simd_ros.checkpoints.features import Feature
from vla_simd_ros.policies.base import Guidance, PolicySpec
from vla_simd_ros.policies.blocks.llama import LlamaConfig
from vla_simd_ros.policies.blocks.siglip import SiglipConfig
from vla_simd_ros.policies.config_fields import (
    action_feature,
    camera_specs,
    check_cameras,
    check_one_moment,
    chunk_rows,
    misfit,
    positive,
    renamed_cameras,
    state_feature,
)
from vla_simd_ros.policies.rtc_config import read_guidance
from vla_simd_ros.policies.smolvla_sizes import Sizes

_IMAGE_SIDE = 512
_MAX_TOKENS = 48


@dataclass(frozen=True)
class ExpertLayer:
    """The expert's layer beside one of the text model's: its number, and whether its tokens attend to the
    prefix and to themselves at once, or only to the prefix."""

    index: int
    joint: bool


@dataclass(frozen=True)
class SmolVlaConfig:
    """Features and sizes. ``image_size`` is what images are fitted into (height, width), None for their own.

    ``expert_layers`` has an entry for each of the text model's layers, None where the expert has none.
    ``shuffle``: so many patches, squared, make an image token. Vectors are padded to ``state_width`` and
    ``action_width``.
    """

    cameras: dict[str, Feature]
    state: Feature
    action: Feature
    chunk_size: int
    n_action_steps: int
    max_tokens: int
    num_steps: int
    image_size: tuple[int, int] | None
    state_width: int
    action_width: int
    image_marks: bool
    vision: SiglipConfig
    shuffle: int
    text: LlamaConfig
    vocabulary: int
    expert: LlamaConfig
    expert_layers: tuple[ExpertLayer | None, ...]
    shortest_period: float
    longest_period: float
    guidance: Guidance

    @property
    def spec(self) -> PolicySpec:
        """The specification of a policy with this configuration."""
        return PolicySpec(
            type="smolvla",
            cameras=camera_specs(self.cameras),
            state_dim=self.state.channels,
            env_state_dim=0,
            action_dim=self.action.channels,
            chunk_size=self.chunk_size,
            n_action_steps=self.n_action_steps,
            uses_instruction=True,
            max_instruction_tokens=self.max_tokens,
            camera_features=renamed_cameras(self.cameras),
            takes_prefix=True,
        )


def read_smolvla_config(checkpoint: Checkpoint) -> SmolVlaConfig:
    """Read config.json. Raises CheckpointError."""
    _check_supported(checkpoint)
    state = state_feature(checkpoint)
    if state is None:
        raise misfit(checkpoint, "input_features", list(checkpoint.features_in), "the robot's state too")
    sizes = Sizes(checkpoint)
    text, vision = sizes.text(), sizes.vision()
    chunk_size, steps = chunk_rows(checkpoint, 50)
    config = SmolVlaConfig(
        cameras=checkpoint.cameras,
        state=state,
        action=action_feature(checkpoint),
        chunk_size=chunk_size,
        n_action_steps=steps,
        max_tokens=positive(checkpoint, "tokenizer_max_length", _MAX_TOKENS),
        num_steps=positive(checkpoint, "num_steps", 10),
        image_size=_image_size(checkpoint),
        state_width=positive(checkpoint, "max_state_dim", 32),
        action_width=positive(checkpoint, "max_action_dim", 32),
        image_marks=checkpoint.option("add_image_special_tokens", bool, False),
        vision=vision,
        shuffle=sizes.shuffle(vision.width),
        text=text,
        vocabulary=sizes.vocabulary,
        expert=sizes.expert(text),
        expert_layers=_expert_layers(checkpoint, sizes.text_layers),
        shortest_period=_period(checkpoint, "min_period", 4e-3),
        longest_period=_period(checkpoint, "max_period", 4.0),
        guidance=read_guidance(checkpoint),
    )
    _check(checkpoint, config)
    return config


def _check_supported(checkpoint: Checkpoint) -> None:
    for name in ("adapt_to_pi_aloha", "use_delta_joint_actions_aloha"):
        if checkpoint.option(name, bool, False):
            raise misfit(checkpoint, name, "true", "false")
    if not checkpoint.cameras:
        raise misfit(checkpoint, "input_features", list(checkpoint.features_in), "a camera among them")
    check_cameras(checkpoint)
    check_one_moment(checkpoint)


def _image_size(checkpoint: Checkpoint) -> tuple[int, int] | None:
    name = "resize_imgs_with_padding"
    if name in checkpoint.config and checkpoint.config[name] is None:
        return None
    size = checkpoint.option(name, list, [_IMAGE_SIDE, _IMAGE_SIDE])
    if len(size) != 2 or not all(type(side) is int and side > 0 for side in size):
        raise misfit(checkpoint, name, size, "[width, height]")
    width, height = size
    return height, width


def _expert_layers(checkpoint: Checkpoint, stored: int) -> tuple[ExpertLayer | None, ...]:
    """Where the expert has layers, ``stored`` ones of the language model being there."""
    chosen = checkpoint.option("num_vlm_layers", int, 16)
    count = chosen if chosen > 0 else stored
    if count > stored:
        raise misfit(checkpoint, "num_vlm_layers", count, f"at most the {stored} that are stored")
    own = checkpoint.option("num_expert_layers", int, -1)
    own = own if own > 0 else count
    if count % own:
        raise misfit(checkpoint, "num_expert_layers", own, f"a divisor of num_vlm_layers ({count})")
    crossing = "cross" in checkpoint.option("attention_mode", str, "cross_attn")
    every = checkpoint.option("self_attn_every_n_layers", int, 2)
    layers: list[ExpertLayer | None] = []
    for index in range(count):
        joint = not crossing or (every > 0 and index % every == 0)
        number, beside = divmod(index, count // own)
        if joint and beside:
            raise misfit(
                checkpoint,
                "num_expert_layers",
                own,
                f"one beside every self-attending layer, layer {index} of num_vlm_layers ({count}) has none",
            )
        layers.append(None if beside else ExpertLayer(number, joint))
    return tuple(layers)


def _check(checkpoint: Checkpoint, config: SmolVlaConfig) -> None:
    for name, width, feature in (
        ("max_state_dim", config.state_width, config.state),
        ("max_action_dim", config.action_width, config.action),
    ):
        if feature.channels > width:
            raise misfit(
                checkpoint, name, width, f"{feature.channels} or more, the width of '{feature.name}'"
            )
    unit = config.vision.patch * config.shuffle
    sizes = [config.image_size] if config.image_size else [f.shape[1:] for f in config.cameras.values()]
    for height, width in sizes:
        if height != width or height % unit:
            name = "resize_imgs_with_padding" if config.image_size else "the size of a camera's images"
            raise misfit(checkpoint, name, f"{width}x{height}", f"a square with a multiple of {unit} pixels")


def _period(checkpoint: Checkpoint, name: str, default: float) -> float:
    value = float(checkpoint.option(name, float, default))
    if value <= 0:
        raise misfit(checkpoint, name, value, "a number above 0")
    return value
