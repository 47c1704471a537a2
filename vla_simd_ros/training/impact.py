"""IMPACT and ACT in PyTorch: what is trained, and the reference that the engine is compared with.

ACT is IMPACT without an instruction. Text is padded and masked, as batched training needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from vla_simd_ros.training.resnet import PUBLISHED_WIDTH, ResNet
from vla_simd_ros.training.t5 import T5Config
from vla_simd_ros.training.text_encoder import TextConfig, make_text_encoder, read_text_config
from vla_simd_ros.training.transformer import (
    Decoder,
    Encoder,
    LayerConfig,
    sine_positions_1d,
    sine_positions_2d,
)

if TYPE_CHECKING:
    from typing_extensions import Self

# The published sizes of ACT where they are others than IMPACT's.
_ACT = {"chunk_size": 100, "n_encoder_layers": 4, "n_decoder_layers": 1}


@dataclass(frozen=True)
class ImpactConfig(LayerConfig):
    """Fields of config.json that shape the network or its loss; dimension 0 means no such input.

    Without a ``text_config`` the network is ACT: it takes no instruction, and names its backbone's stages as
    torchvision does.
    """

    state_dim: int = 6
    env_state_dim: int = 0
    action_dim: int = 6
    chunk_size: int = 50
    n_encoder_layers: int = 6
    n_decoder_layers: int = 4
    n_vae_encoder_layers: int = 4
    vision_backbone: str = "resnet18"
    backbone_width: int = PUBLISHED_WIDTH
    use_vae: bool = True
    latent_dim: int = 32
    kl_weight: float = 10.0
    use_film: bool = True
    vae_sees_language: bool = True
    tokenizer_max_length: int = 32
    text_config: TextConfig | None = field(default_factory=T5Config)

    @classmethod
    def from_json(cls, config: Mapping[str, Any], text_config: Mapping[str, Any] | None = None) -> Self:
        """From the content of a checkpoint's config.json and of its text encoder's configuration.

        Fields that are absent have the published sizes; fields of no consequence here are passed over.
        """
        inputs, outputs = config["input_features"], config["output_features"]
        widths = {
            "state_dim": _width(inputs, "STATE"),
            "env_state_dim": _width(inputs, "ENV"),
            "action_dim": _width(outputs, "ACTION"),
        }
        if config.get("type") == "act":
            given: dict[str, Any] = {**_ACT, **config, "use_film": False, "vae_sees_language": False}
            text = None
        else:
            given, text = dict(config), read_text_config(text_config or {})
        known = {f.name: given[f.name] for f in fields(cls) if f.name in given}
        return cls(**{**known, **widths, "text_config": text})


def _width(features: Mapping[str, Any], kind: str) -> int:
    return sum(feature["shape"][0] for feature in features.values() if feature["type"] == kind)


@dataclass(frozen=True)
class ImpactInputs:
    """A batch of normalized observations: images ``[B, 3, H, W]`` in the policy's order of cameras.

    The instruction is given by its tokens, ``[B, n]`` with a mask that is true for text; ``text_states`` are
    what the frozen encoder makes of them, where that is known already.
    """

    images: Sequence[Tensor]
    state: Tensor | None
    env_state: Tensor | None
    token_ids: Tensor | None = None
    token_mask: Tensor | None = None
    text_states: Tensor | None = None


class ImpactPolicy(nn.Module):
    """The network under the name that checkpoints give it, and its training loss."""

    def __init__(self, config: ImpactConfig, norm: Callable[[int], nn.Module] | None = None) -> None:
        super().__init__()
        self.config = config
        self.model = Impact(config, norm)

    @torch.no_grad()
    def predict(self, inputs: ImpactInputs) -> Tensor:
        """Normalized actions ``[B, chunk, A]`` for the most likely latent, zero."""
        first = inputs.images[0] if inputs.images else inputs.env_state
        assert first is not None
        size = first.shape[0]
        weight = self.model.action_head.weight
        latent = torch.zeros(size, self.config.latent_dim, dtype=weight.dtype, device=weight.device)
        states = self.model.encode_text(inputs)
        return self.model.decode_actions(inputs, states, latent)

    def forward(
        self, inputs: ImpactInputs, actions: Tensor, is_pad: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Loss of normalized ``actions`` ``[B, chunk, A]``; rows with ``is_pad`` ``[B, chunk]`` do not count.

        Returns the loss and its parts, ``l1`` and (with the variational encoder) ``kl``.
        """
        states = self.model.encode_text(inputs)
        if self.config.use_vae:
            mean, log_variance = self.model.encode_actions(inputs, states, actions, is_pad)
            latent = mean + (log_variance / 2).exp() * torch.randn_like(mean)
        else:
            latent = actions.new_zeros(actions.shape[0], self.config.latent_dim)
        predicted = self.model.decode_actions(inputs, states, latent)
        valid = (~is_pad)[..., None].to(predicted.dtype)
        total = (valid.sum() * self.config.action_dim).clamp(min=1)
        parts = {"l1": ((predicted - actions).abs() * valid).sum() / total}
        loss = parts["l1"]
        if self.config.use_vae:
            parts["kl"] = (mean.pow(2) + log_variance.exp() - 1 - log_variance).sum(-1).mean() / 2
            loss = loss + self.config.kl_weight * parts["kl"]
        return loss, parts

    def train(self, mode: bool = True) -> ImpactPolicy:
        """The text encoder is frozen: it never trains."""
        super().train(mode)
        if self.config.text_config is not None:
            self.model.text.eval()
        return self


class ImpactEncoder(nn.Module):
    """The network up to its encoder, its parameters named as in checkpoints; ``norm`` replaces the backbone's
    frozen norms."""

    def __init__(self, config: ImpactConfig, norm: Callable[[int], nn.Module] | None = None) -> None:
        super().__init__()
        self.config = config
        width = config.dim_model
        text = config.text_config
        self.backbone = ResNet(
            config.vision_backbone, config.backbone_width, norm, torchvision_names=text is None
        )
        self.encoder = Encoder(config, config.n_encoder_layers)
        self.encoder_latent_input_proj = nn.Linear(config.latent_dim, width)
        if config.state_dim:
            self.encoder_robot_state_input_proj = nn.Linear(config.state_dim, width)
        if config.env_state_dim:
            self.encoder_env_state_input_proj = nn.Linear(config.env_state_dim, width)
        self.encoder_img_feat_input_proj = nn.Conv2d(self.backbone.channels[-1], width, 1)
        vectors = 1 + bool(config.state_dim) + bool(config.env_state_dim)
        self.encoder_1d_feature_pos_embed = nn.Embedding(vectors, width)
        if text is not None:
            self._add_text(text, width)
        xavier(self.encoder)

    def _add_text(self, text: TextConfig, width: int) -> None:
        self.text = nn.ModuleDict({"model": make_text_encoder(text)})
        self.text.requires_grad_(False)
        self.text_input_proj = nn.Linear(text.d_model, width)
        self.text_pos_embed = nn.Embedding(self.config.tokenizer_max_length, width)
        if self.config.use_film:
            self.film_head = FilmHead(text.d_model, self.backbone.channels)

    def encode_text(self, inputs: ImpactInputs) -> Tensor | None:
        """Text states ``[B, n, d_model]``, None without text; nobody may read what padded rows hold."""
        if self.config.text_config is None or inputs.text_states is not None:
            return inputs.text_states
        states: Tensor = self.text["model"](inputs.token_ids, inputs.token_mask)
        return states

    def encode(self, inputs: ImpactInputs, states: Tensor | None, latent: Tensor) -> Memory:
        """What the encoder makes of an observation, its text ``states`` and a latent ``[B, latent_dim]``."""
        tokens, positions = self._vector_tokens(inputs, latent)
        self._add_image_tokens(inputs, states, tokens, positions)
        padding = None
        if states is not None:
            mask = _mask(inputs)
            padding = torch.cat((mask.new_zeros(len(mask), sum(t.shape[1] for t in tokens)), ~mask), dim=1)
            tokens.append(self.text_input_proj(states))
            positions.append(self.text_pos_embed.weight[: states.shape[1]])
        x = torch.cat(tokens, dim=1)
        place = torch.cat(positions).to(x.dtype)
        return Memory(self.encoder(x, place, padding), place, padding)

    def _vector_tokens(self, inputs: ImpactInputs, latent: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        tokens = [self.encoder_latent_input_proj(latent)[:, None]]
        if self.config.state_dim:
            tokens.append(self.encoder_robot_state_input_proj(inputs.state)[:, None])
        if self.config.env_state_dim:
            tokens.append(self.encoder_env_state_input_proj(inputs.env_state)[:, None])
        return tokens, [self.encoder_1d_feature_pos_embed.weight]

    def _add_image_tokens(
        self, inputs: ImpactInputs, states: Tensor | None, tokens: list[Tensor], positions: list[Tensor]
    ) -> None:
        modulation = None
        if states is not None and self.config.use_film:
            modulation = self.film_head(mean_state(states, _mask(inputs)))
        for image in inputs.images:
            features = self.encoder_img_feat_input_proj(self.backbone(image, modulation))
            height, width = features.shape[2:]
            tokens.append(features.flatten(2).transpose(1, 2))
            place = sine_positions_2d(height, width, self.config.dim_model)
            positions.append(place.to(features.device, features.dtype))


@dataclass(frozen=True)
class Memory:
    """Encoded rows ``[B, n, width]``, their positions ``[n, width]``, and which are no rows ``[B, n]``."""

    rows: Tensor
    positions: Tensor
    padding: Tensor | None


class Impact(ImpactEncoder):
    """The whole network."""

    def __init__(self, config: ImpactConfig, norm: Callable[[int], nn.Module] | None = None) -> None:
        super().__init__(config, norm)
        width = config.dim_model
        self.decoder = Decoder(config, config.n_decoder_layers)
        self.decoder_pos_embed = nn.Embedding(config.chunk_size, width)
        self.action_head = nn.Linear(width, config.action_dim)
        if config.use_vae:
            self._add_vae(width, config.text_config.d_model if config.text_config else 0)
        xavier(self.decoder)

    def _add_vae(self, width: int, text: int) -> None:
        config = self.config
        self.vae_encoder = Encoder(config, config.n_vae_encoder_layers)
        self.vae_encoder_cls_embed = nn.Embedding(1, width)
        tokens = 1
        if config.state_dim:
            self.vae_encoder_robot_state_input_proj = nn.Linear(config.state_dim, width)
            tokens += 1
        if config.vae_sees_language:
            self.vae_encoder_language_input_proj = nn.Linear(text, width)
            tokens += 1
        self.vae_encoder_action_input_proj = nn.Linear(config.action_dim, width)
        self.vae_encoder_latent_output_proj = nn.Linear(width, 2 * config.latent_dim)
        positions = sine_positions_1d(tokens + config.chunk_size, width)
        self.register_buffer("vae_encoder_pos_enc", positions[None])

    def decode_actions(self, inputs: ImpactInputs, states: Tensor | None, latent: Tensor) -> Tensor:
        """Normalized actions for a latent ``[B, latent_dim]``."""
        memory = self.encode(inputs, states, latent)
        queries = self.decoder_pos_embed.weight
        blank = memory.rows.new_zeros(memory.rows.shape[0], *queries.shape)
        decoded = self.decoder(blank, memory.rows, queries, memory.positions, memory.padding)
        actions: Tensor = self.action_head(decoded)
        return actions

    def encode_actions(
        self, inputs: ImpactInputs, states: Tensor | None, actions: Tensor, is_pad: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Mean and logarithm of the variance of the latent, ``[B, latent_dim]`` each."""
        size = actions.shape[0]
        tokens = [self.vae_encoder_cls_embed.weight.expand(size, 1, -1)]
        if self.config.state_dim:
            tokens.append(self.vae_encoder_robot_state_input_proj(inputs.state)[:, None])
        if states is not None and self.config.vae_sees_language:
            instruction = mean_state(states, _mask(inputs))
            tokens.append(self.vae_encoder_language_input_proj(instruction)[:, None])
        padding = torch.cat((is_pad.new_zeros(size, len(tokens)), is_pad), dim=1)
        tokens.append(self.vae_encoder_action_input_proj(actions))
        encoded = self.vae_encoder(torch.cat(tokens, dim=1), self.vae_encoder_pos_enc, padding)
        mean, log_variance = self.vae_encoder_latent_output_proj(encoded[:, 0]).chunk(2, dim=-1)
        return mean, log_variance


def xavier(stack: nn.Module) -> None:
    """Begin a stack of layers as transformers are."""
    for parameter in stack.parameters():
        if parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)


class FilmHead(nn.Module):
    """Scale and shift of every stage's features from the mean text state; identity until trained."""

    def __init__(self, text_width: int, channels: Sequence[int]) -> None:
        super().__init__()
        self.channels = tuple(channels)
        self.net = nn.Linear(text_width, 2 * sum(channels))
        nn.init.zeros_(self.net.weight)
        nn.init.zeros_(self.net.bias)

    def forward(self, mean: Tensor) -> list[tuple[Tensor, Tensor]]:
        """One ``(gamma, beta)`` of ``[B, C]`` for each stage."""
        gammas, betas = self.net(mean).chunk(2, dim=-1)
        return list(zip(gammas.split(self.channels, -1), betas.split(self.channels, -1), strict=True))


def _mask(inputs: ImpactInputs) -> Tensor:
    if inputs.token_mask is None:
        raise ValueError("the instruction's mask is missing, expected one beside its tokens or states")
    return inputs.token_mask


def mean_state(states: Tensor, mask: Tensor) -> Tensor:
    """Mean ``[B, d_model]`` of the states that are no padding."""
    weight = mask[..., None].to(states.dtype)
    return (states * weight).sum(1) / weight.sum(1)
