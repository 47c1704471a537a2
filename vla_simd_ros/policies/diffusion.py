"""Diffusion Policy: a chunk of actions denoised step by step, under the observations of some moments.

Each frame becomes key points (a ResNet and a spatial softmax); with the states they are the conditions under
which a U-Net over time predicts the noise in a chunk.
"""

from __future__ import annotations

from vla_simd_ros.checkpoints.checkpoint import Checkpoint
from vla_simd_ros.checkpoints.features import Feature
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.errors import GraphError
from vla_simd_ros.graph.ir import DType, Graph, Lifetime, Tensor
from vla_simd_ros.policies.base import PolicySpec
from vla_simd_ros.policies.blocks.keypoint_encoder import KeypointEncoder
from vla_simd_ros.policies.blocks.normalization import normalized_image, normalized_vector, unnormalized
from vla_simd_ros.policies.blocks.step_embedding import step_embeddings
from vla_simd_ros.policies.blocks.unet1d import UNet
from vla_simd_ros.policies.diffusion_config import read_diffusion_config
from vla_simd_ros.policies.solvers.diffusion import DiffusionSolver
from vla_simd_ros.policies.weights import Weights


class DiffusionPolicy:
    """Diffusion Policy as LeRobot stores it. Raises CheckpointError for what does not fit."""

    action_tokens = None

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._config = read_diffusion_config(checkpoint)
        self._weights = Weights(checkpoint.weights, "diffusion.unet.")
        self._unet = UNet(self._config.unet, self._weights)
        self._encoders = self._make_encoders()

    @property
    def spec(self) -> PolicySpec:
        """Cameras, widths, chunk size and observation steps."""
        return self._config.spec

    @property
    def solver(self) -> DiffusionSolver:
        """DDPM or DDIM, as configured."""
        return self._config.solver

    def check_stored(self) -> None:
        """Nothing of Diffusion Policy is used where it is stored."""

    def build(self, tokens: int | None = None, rows: int = 1) -> Graph:
        """The graph; Diffusion Policy takes no instruction, so ``tokens`` must be None."""
        if tokens is not None:
            raise GraphError(f"diffusion takes no instruction, got {tokens} tokens")
        b = Builder()
        observed = self._observe(b)
        with b.block("solver"):
            sample = self.solver.sample(b)
        conditions = self._conditions(b, observed)
        prediction = self._unet.build(b, sample, conditions)
        with b.block("solver"):
            following = self.solver.advance(b, sample, prediction)
        b.output("sample", following)
        with b.block("postprocess"):
            first = self._config.observation_steps - 1
            executed = b.slice(
                following, axis=0, start=first, stop=first + self._config.n_action_steps, name="chunk"
            )
            unnormalizer = self._checkpoint.unnormalizers[self._config.action.name]
            b.output("action", unnormalized(b, executed, unnormalizer, name="action"))
        return b.graph()

    def _make_encoders(self) -> dict[str, KeypointEncoder]:
        """Each camera's encoder, which may be the same for all."""
        config, source = self._config, self._checkpoint.weights
        if config.separate_encoders:
            return {
                camera: KeypointEncoder(config.encoder, source, f"diffusion.rgb_encoder.{index}.")
                for index, camera in enumerate(config.cameras)
            }
        return dict.fromkeys(
            config.cameras, KeypointEncoder(config.encoder, source, "diffusion.rgb_encoder.")
        )

    def _observe(self, b: Builder) -> Tensor:
        """The observations of all moments in one row [1, D], the oldest first."""
        vectors = [("state", self._config.state)]
        if self._config.env_state is not None:
            vectors.append(("env_state", self._config.env_state))
        given = {name: self._vector(b, name, feature) for name, feature in vectors}
        parts = []
        for moment in range(self._config.observation_steps):
            views = [self._view(b, camera, moment) for camera in self._config.cameras]
            with b.block("conditions"):
                state, *env_state = (
                    b.slice(x, axis=0, start=moment, stop=moment + 1, name=f"{name}.{moment}")
                    for name, x in given.items()
                )
            parts += [state, *views, *env_state]
        with b.block("conditions"):
            return b.concat(parts, axis=1, name="observed")

    def _conditions(self, b: Builder, observed: Tensor) -> Tensor:
        """Time and observations, activated as every block of the U-Net reads them."""
        width = self._config.embedding
        with b.block("step"):
            # One row of the table stands for a time: what is computed from it can be computed for all.
            table = b.constant("times", step_embeddings(self.solver.train_steps, width))
            x = b.embedding(table, self.solver.times(b), name="time")
            x = self._linear(b, x, "diffusion_step_encoder.1", 4 * width, name="widened")
            x = b.activation("mish", x, name="widened.mish")
            x = self._linear(b, x, "diffusion_step_encoder.3", width, name="encoded")
        with b.block("conditions"):
            together = b.concat([x, observed], axis=1, name="conditions")
            return b.activation("mish", together, name="conditions.mish")

    def _vector(self, b: Builder, name: str, feature: Feature) -> Tensor:
        with b.block("preprocess"):
            shape = self._config.observation_steps, feature.channels
            given = b.input(name, shape, DType.F32, Lifetime.QUERY)
            return normalized_vector(b, given, self._checkpoint.normalizers[feature.name], name=name)

    def _view(self, b: Builder, camera: str, moment: int) -> Tensor:
        """The key points that a camera saw at one moment."""
        view = f"{camera}.{moment}" if self._config.observation_steps > 1 else camera
        feature = self._config.cameras[camera]
        channels, height, width = feature.shape
        with b.block("preprocess"):
            image = b.input(f"image.{view}", (height, width, channels), DType.U8, Lifetime.QUERY)
            x = normalized_image(b, image, self._checkpoint.normalizers[feature.name], name=f"image.{view}")
        return self._encoders[camera].build(b, x, view)

    def _linear(self, b: Builder, x: Tensor, module: str, outputs: int, *, name: str) -> Tensor:
        weight = self._weights.constant(b, f"{module}.weight", outputs, x.shape[1])
        return b.linear(x, weight, self._weights.constant(b, f"{module}.bias", outputs), name=name)
