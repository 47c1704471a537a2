"""Runs the PyTorch IMPACT or ACT from a checkpoint folder on raw observations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from vla_simd_ros.checkpoints import Checkpoint, CheckpointError, Feature, FeatureKind
from vla_simd_ros.checkpoints.normalization import Normalizer
from vla_simd_ros.training.impact import ImpactConfig, ImpactInputs, ImpactPolicy

TEXT_PREFIX = "model.text.model."
# Parts of published text encoders that no policy reads.
_UNREAD = (f"{TEXT_PREFIX}pooler.", f"{TEXT_PREFIX}embeddings.position_ids")


def load_impact(checkpoint: Checkpoint, dtype: torch.dtype = torch.float32) -> ImpactPolicy:
    """The network of ``checkpoint`` in evaluation mode, all weights in ``dtype``.

    Raises `CheckpointError` if tensors are missing, unexpected or of another shape.
    """
    weights, text_config = stored_weights(checkpoint)
    policy = ImpactPolicy(ImpactConfig.from_json(checkpoint.config, text_config))
    load_weights(policy, weights, checkpoint)
    return policy.to(dtype).eval()


def stored_weights(checkpoint: Checkpoint) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The weights of a checkpoint with its text encoder's, and that one's configuration."""
    weights = {
        name: torch.from_numpy(np.array(checkpoint.tensors[name]))
        for name in checkpoint.tensors
        if not name.startswith(_UNREAD)
    }
    text_config = checkpoint.option("text_config", dict, {})
    if checkpoint.type != "act" and not any(name.startswith(TEXT_PREFIX) for name in weights):
        # The encoder is frozen in training, so it may have been left out and kept beside the weights.
        text_config, text = checkpoint.text_encoder()
        weights |= {TEXT_PREFIX + name: torch.from_numpy(np.array(text[name])) for name in text}
    return weights, text_config


def load_weights(policy: nn.Module, weights: Mapping[str, Tensor], checkpoint: Checkpoint) -> None:
    """Put a checkpoint's weights into a network. Raises `CheckpointError` where they do not fit."""
    try:
        policy.load_state_dict(weights)
    except RuntimeError as error:
        raise CheckpointError(f"{checkpoint.weights.path}: {error}") from None


class ImpactPredictor:
    """Raw observations in, actions in robot units out, all arithmetic in ``dtype``."""

    def __init__(self, checkpoint: Checkpoint, dtype: torch.dtype = torch.float32) -> None:
        self._checkpoint = checkpoint
        self._dtype = dtype
        self._reader = ObservationReader(checkpoint, dtype)
        self.policy = load_impact(checkpoint, dtype)

    def predict(
        self,
        images: Mapping[str, npt.NDArray[np.uint8]],
        state: npt.NDArray[np.float32] | None,
        env_state: npt.NDArray[np.float32] | None,
        instruction: str = "",
    ) -> npt.NDArray[Any]:
        """Actions ``[chunk, A]`` for ``[H, W, 3]`` images by camera and vectors in robot units."""
        actions = self.policy.predict(self._reader.inputs(images, state, env_state, instruction))[0]
        (unnormalizer,) = self._checkpoint.unnormalizers.values()
        scale, offset = (torch.from_numpy(values.copy()).to(self._dtype) for values in unnormalizer.affine())
        robot: npt.NDArray[Any] = (actions * scale + offset).numpy()
        return robot


class ObservationReader:
    """Makes of raw observations what the network of a checkpoint takes, in ``dtype``."""

    def __init__(self, checkpoint: Checkpoint, dtype: torch.dtype) -> None:
        self._checkpoint = checkpoint
        self._dtype = dtype
        self._tokenizer = checkpoint.tokenizer() if checkpoint.type != "act" else None

    def inputs(
        self,
        images: Mapping[str, npt.NDArray[np.uint8]],
        state: npt.NDArray[np.float32] | None,
        env_state: npt.NDArray[np.float32] | None,
        instruction: str,
    ) -> ImpactInputs:
        """A batch of one, normalized."""
        return ImpactInputs(
            [self._image(feature, images[name]) for name, feature in self._checkpoint.cameras.items()],
            self._vector(FeatureKind.STATE, state),
            self._vector(FeatureKind.ENV, env_state),
            *self._tokens(instruction),
        )

    def _tokens(self, instruction: str) -> tuple[Tensor, Tensor] | tuple[()]:
        if self._tokenizer is None:
            return ()
        ids = self._tokenizer.encode(instruction)
        padding = self._tokenizer.max_tokens - len(ids)
        padded = torch.tensor([ids + [0] * padding])
        return padded, torch.tensor([[True] * len(ids) + [False] * padding])

    def _image(self, feature: Feature, image: npt.NDArray[np.uint8]) -> Tensor:
        pixels = torch.from_numpy(np.ascontiguousarray(image)).permute(2, 0, 1).contiguous()
        return self._normalize(self._checkpoint.normalizers[feature.name], pixels.to(self._dtype) / 255)[None]

    def _vector(self, kind: FeatureKind, values: npt.NDArray[np.float32] | None) -> Tensor | None:
        features = [f for f in self._checkpoint.features_in.values() if f.kind is kind]
        if not features or values is None:
            return None
        vector = torch.from_numpy(np.asarray(values, np.float32)).to(self._dtype)
        return self._normalize(self._checkpoint.normalizers[features[0].name], vector)[None]

    def _normalize(self, normalizer: Normalizer, x: Tensor) -> Tensor:
        def per_channel(values: npt.NDArray[np.float32]) -> Tensor:
            return torch.from_numpy(values.copy()).to(self._dtype).reshape(-1, *[1] * (x.dim() - 1))

        y = (x - per_channel(normalizer.offset)) / per_channel(normalizer.divisor)
        return y if normalizer.shift is None else y + per_channel(normalizer.shift)
