"""The PyTorch IMPACT: what training relies on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from vla_simd_ros.checkpoints import Checkpoint, CheckpointError, load_checkpoint
from vla_simd_ros.checkpoints.synthesis import Camera, Options, make_checkpoint
from vla_simd_ros.fidelity.observations import random_observations

if TYPE_CHECKING:
    from vla_simd_ros.training.impact import ImpactInputs, ImpactPolicy

pytestmark = pytest.mark.needs_torch

SIZES = {
    "dim_model": 16,
    "heads": 2,
    "feedforward": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "chunk_size": 4,
}
SETTINGS = {
    "n_vae_encoder_layers": 1,
    "tokenizer_max_length": 8,
    "text_config.d_model": 16,
    "text_config.d_kv": 8,
    "text_config.d_ff": 16,
    "text_config.num_layers": 2,
    "text_config.num_heads": 2,
    "text_config.vocab_size": 500,
}
INSTRUCTION = "open the drawer"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("training") / "impact"
    cameras = (Camera("front", 32, 48), Camera("wrist", 32, 32))
    make_checkpoint("impact", folder, Options(seed=5, cameras=cameras, sizes=SIZES, settings=SETTINGS))
    return load_checkpoint(folder)


@pytest.fixture
def policy(checkpoint: Checkpoint) -> ImpactPolicy:
    import torch

    from vla_simd_ros.training.impact_predictor import load_impact

    torch.manual_seed(0)
    return load_impact(checkpoint, torch.float64)


def batch(size: int = 3) -> ImpactInputs:
    import torch

    from vla_simd_ros.training.impact import ImpactInputs

    generator = torch.Generator().manual_seed(1)

    def normal(*shape: int) -> Any:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    mask = torch.zeros(size, 8, dtype=torch.bool)
    for row in range(size):
        mask[row, : 3 + row] = True
    ids = torch.randint(3, 400, (size, 8), generator=generator)
    return ImpactInputs([normal(size, 3, 32, 48), normal(size, 3, 32, 32)], normal(size, 6), None, ids, mask)


def actions(size: int = 3) -> tuple[Any, Any]:
    import torch

    wanted = torch.randn(size, 4, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    return wanted, torch.zeros(size, 4, dtype=torch.bool)


def test_parameter_names_are_those_of_the_checkpoint(checkpoint: Checkpoint, policy: ImpactPolicy) -> None:
    state = policy.state_dict()

    assert {name: tuple(value.shape) for name, value in state.items()} == {
        name: checkpoint.weights.shape(name) for name in checkpoint.tensors
    }


def test_what_padded_rows_hold_does_not_matter(policy: ImpactPolicy) -> None:
    import torch

    inputs = batch()
    expected = policy.predict(inputs)
    inputs.token_ids[~inputs.token_mask] = 7

    torch.testing.assert_close(policy.predict(inputs), expected, rtol=0, atol=1e-14)


def test_a_batch_is_the_same_as_its_rows(policy: ImpactPolicy) -> None:
    import torch

    from vla_simd_ros.training.impact import ImpactInputs

    inputs = batch()
    together = policy.predict(inputs)
    for row in range(3):
        one = slice(row, row + 1)
        images = [image[one] for image in inputs.images]
        assert inputs.state is not None
        alone = ImpactInputs(images, inputs.state[one], None, inputs.token_ids[one], inputs.token_mask[one])
        torch.testing.assert_close(policy.predict(alone), together[one], rtol=0, atol=1e-12)


def test_every_input_matters(policy: ImpactPolicy) -> None:
    from dataclasses import replace

    inputs = batch()
    expected = policy.predict(inputs)
    assert inputs.state is not None
    changes = (
        replace(inputs, state=inputs.state + 1),
        replace(inputs, images=[inputs.images[0] + 1, inputs.images[1]]),
        replace(inputs, images=[inputs.images[0], inputs.images[1] + 1]),
        replace(inputs, token_ids=inputs.token_ids + 1),
    )
    for changed in changes:
        assert float((policy.predict(changed) - expected).abs().max()) > 1e-4


def test_loss_ignores_padded_actions(policy: ImpactPolicy) -> None:
    import torch

    wanted, is_pad = actions()
    is_pad[:, 2:] = True
    losses = []
    for value in (0.0, 100.0):
        torch.manual_seed(0)
        wanted[:, 2:] = value
        losses.append(policy(batch(), wanted, is_pad)[0])

    torch.testing.assert_close(losses[0], losses[1], rtol=0, atol=1e-12)


def test_loss_is_its_parts(policy: ImpactPolicy) -> None:
    import torch

    loss, parts = policy(batch(), *actions())

    assert set(parts) == {"l1", "kl"}
    assert float(parts["kl"]) >= 0
    torch.testing.assert_close(loss, parts["l1"] + 10 * parts["kl"])


def test_divergence_of_a_standard_normal_is_zero(policy: ImpactPolicy) -> None:
    import torch

    with torch.no_grad():
        for parameter in policy.model.vae_encoder_latent_output_proj.parameters():
            parameter.zero_()

    assert float(policy(batch(), *actions())[1]["kl"]) == 0


def test_the_encoder_of_actions_sees_language(policy: ImpactPolicy) -> None:
    from dataclasses import replace

    inputs, (wanted, is_pad) = batch(), actions()
    other = replace(inputs, token_ids=inputs.token_ids + 1)
    means = [
        policy.model.encode_actions(x, policy.model.encode_text(x), wanted, is_pad)[0]
        for x in (inputs, other)
    ]

    assert float((means[0] - means[1]).abs().max()) > 1e-6


def test_training_learns_a_batch_and_leaves_the_text_encoder_alone(policy: ImpactPolicy) -> None:
    import torch

    before = {name: value.clone() for name, value in policy.model.text.state_dict().items()}
    policy.train()
    assert not policy.model.text.training
    optimizer = torch.optim.AdamW(
        [p for p in policy.parameters() if p.requires_grad], lr=1e-3, weight_decay=1e-4
    )
    inputs, (wanted, is_pad) = batch(), actions()
    losses = []
    for _ in range(30):
        loss, _ = policy(inputs, wanted, is_pad)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))

    assert losses[-1] < 0.7 * losses[0]
    for name, value in policy.model.text.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)


def test_every_other_parameter_gets_a_gradient(policy: ImpactPolicy) -> None:
    policy.train()
    policy(batch(), *actions())[0].backward()

    without = [name for name, p in policy.named_parameters() if p.requires_grad and p.grad is None]
    assert without == []


def test_film_starts_as_the_identity(checkpoint: Checkpoint) -> None:
    import torch

    from vla_simd_ros.training.impact import ImpactConfig, ImpactPolicy

    torch.manual_seed(0)
    fresh = ImpactPolicy(ImpactConfig.from_json(checkpoint.config, checkpoint.config["text_config"]))
    modulation = fresh.model.film_head(torch.randn(2, 16))

    assert [gamma.shape[1] for gamma, _ in modulation] == [64, 128, 256, 512]
    assert all(not gamma.any() and not beta.any() for gamma, beta in modulation)


def test_predictor_is_repeatable_and_precise(checkpoint: Checkpoint) -> None:
    import torch

    from vla_simd_ros.training.impact_predictor import ImpactPredictor

    (observation,) = random_observations(checkpoint, 1, seed=0)
    arguments = (observation.images, observation.state, observation.env_state, INSTRUCTION)
    single, double = (
        ImpactPredictor(checkpoint, d).predict(*arguments) for d in (torch.float32, torch.float64)
    )

    assert single.dtype == np.float32
    assert double.dtype == np.float64
    assert 0 < np.abs(single - double).max() < 2e-6 * np.abs(double).max()


def test_text_encoder_beside_the_weights(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """Published folders may leave the frozen encoder out of the weights."""
    import torch

    from vla_simd_ros.training.impact_predictor import load_impact

    folder, prefix = tmp_path / "impact", "model.text.model."
    shutil.copytree(checkpoint.folder, folder)
    weights = load_file(folder / "model.safetensors")
    text = {name.removeprefix(prefix): weights.pop(name) for name in list(weights) if name.startswith(prefix)}
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match="holds no text encoder"):
        load_impact(load_checkpoint(folder))
    (folder / "text_encoder").mkdir()
    save_file(text, folder / "text_encoder" / "model.safetensors")
    (folder / "text_encoder" / "config.json").write_text(json.dumps(checkpoint.config["text_config"]))

    loaded = load_impact(load_checkpoint(folder), torch.float64).predict(batch())
    torch.testing.assert_close(
        loaded, load_impact(checkpoint, torch.float64).predict(batch()), rtol=0, atol=0
    )


def test_missing_and_unexpected_tensors_are_named(checkpoint: Checkpoint, tmp_path: Path) -> None:
    from vla_simd_ros.training.impact_predictor import load_impact

    folder = tmp_path / "impact"
    shutil.copytree(checkpoint.folder, folder)
    weights = load_file(folder / "model.safetensors")
    weights["model.surprise"] = weights.pop("model.action_head.bias")
    save_file(weights, folder / "model.safetensors")

    with pytest.raises(CheckpointError, match=r"(?s)model.action_head.bias.*model.surprise"):
        load_impact(load_checkpoint(folder))


def test_absent_fields_have_the_published_sizes() -> None:
    from vla_simd_ros.training.impact import ImpactConfig
    from vla_simd_ros.training.t5 import T5Config

    features = {"observation.state": {"type": "STATE", "shape": [8]}}
    action = {"action": {"type": "ACTION", "shape": [7]}}
    config = {"input_features": features, "output_features": action, "type": "impact"}

    assert ImpactConfig.from_json(config, {"architectures": ["T5"]}) == ImpactConfig(
        state_dim=8, action_dim=7
    )
    assert ImpactConfig().text_config == T5Config()
    assert (ImpactConfig().chunk_size, ImpactConfig().n_encoder_layers, ImpactConfig().n_decoder_layers) == (
        50,
        6,
        4,
    )
