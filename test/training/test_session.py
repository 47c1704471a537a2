"""Training from a dataset to a folder that the engine runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from demonstration_doubles import HEIGHT, TASKS, WIDTH, Memory
from safetensors.numpy import load_file, save_file

from vla_simd_ros.checkpoints import load_checkpoint
from vla_simd_ros.checkpoints.synthesis.wordpiece_vocabulary import bert_tokenizer
from vla_simd_ros.inference import Policy
from vla_simd_ros.observation import Observation

if TYPE_CHECKING:
    from vla_simd_ros.training.session import Request

pytestmark = pytest.mark.needs_torch

SETTINGS: dict[str, Any] = {
    "backbone_width": 8,
    "dim_model": 16,
    "n_heads": 2,
    "dim_feedforward": 16,
    "n_encoder_layers": 1,
    "n_decoder_layers": 1,
    "n_vae_encoder_layers": 1,
    "chunk_size": 3,
    "optimizer_lr": 3e-3,
    "optimizer_lr_backbone": 3e-3,
}
TRAINING = {"steps": 6, "batch_size": 8, "warmup_steps": 0, "held_out": 0.2}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small BERT with random weights."""
    import torch

    from vla_simd_ros.training.bert import BertConfig, BertEncoder

    folder = tmp_path_factory.mktemp("encoder")
    vocabulary = bert_tokenizer(700)["model"]["vocab"]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    torch.manual_seed(0)
    sizes = {"vocab_size": 700, "hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 16, "max_position_embeddings": 40}
    network = BertEncoder(BertConfig(**sizes))
    save_file({k: v.numpy() for k, v in network.state_dict().items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": "bert", **sizes}))
    return folder


@pytest.fixture
def request_(tmp_path: Path, encoder: Path) -> Request:
    from vla_simd_ros.training.session import Request

    return Request("impact", Memory(), ["memory"], tmp_path / "run", SETTINGS, TRAINING, encoder)


def train(request: Request, said: list[str] | None = None) -> Path:
    from vla_simd_ros.training.session import Session

    say = (lambda text: None) if said is None else said.append
    return Session(request, say).train(log_every=3, save_every_s=1e9)


def log(folder: Path) -> list[dict[str, str]]:
    from vla_simd_ros.training.trainer import read_log

    return list(read_log(folder / "log.csv"))


@pytest.mark.parametrize("policy", ["impact", "act"])
def test_the_loss_falls_and_the_engine_runs_what_was_learned(request_: Request, policy: str) -> None:
    from vla_simd_ros.training.impact_predictor import ImpactPredictor

    training = {**TRAINING, "steps": 45, "decay_steps": 10, "image_shift": 1, "image_brightness": 0.1}
    training["state_noise"] = 0.01
    said: list[str] = []
    folder = train(replace(request_, policy=policy, training=training), said)

    rows = log(request_.folder)
    assert [int(row["step"]) for row in rows] == list(range(3, 46, 3))
    assert float(rows[-1]["l1"]) < 0.5 * float(rows[0]["l1"])
    assert all(0 < float(row["held_out_l1"]) < 10 for row in rows)
    assert (request_.folder / "loss.png").read_bytes()[:4] == b"\x89PNG"
    assert any("step 45 of 45" in line for line in said)

    checkpoint, engine = load_checkpoint(folder), Policy.load(folder)
    predictor = ImpactPredictor(checkpoint)
    for index in (0, 7):
        frame = Memory().frames[index]
        images = {camera: frame[f"observation.images.{camera}"] for camera in ("front", "wrist")}
        if policy == "impact":
            engine.set_instruction(TASKS[1])
        actions = engine.query(Observation(images, frame["observation.state"])).actions
        expected = predictor.predict(images, frame["observation.state"], None, TASKS[1])
        assert np.abs(actions - expected).max() < 2e-6 * max(np.abs(expected).max(), 1)
    record = json.loads((folder / "train_config.json").read_text())
    assert (record["policy"], record["step"], record["episodes"]) == (policy, 45, 3)


def test_a_run_that_was_stopped_goes_on_as_if_it_had_not_been(request_: Request, tmp_path: Path) -> None:
    whole = load_checkpoint(train(request_)).tensors

    half = replace(request_, folder=tmp_path / "half", training={**TRAINING, "steps": 3})
    train(half)
    rest = replace(half, resume=True, settings={}, training={"steps": 6})
    resumed = load_checkpoint(train(rest)).tensors

    for name, values in whole.items():
        np.testing.assert_array_equal(values, resumed[name], err_msg=name)
    assert [row["step"] for row in log(half.folder)] == ["3", "6"]


def test_lines_of_steps_that_are_taken_again_go(request_: Request) -> None:
    train(request_)
    state = request_.folder / "training_state.pt"
    kept = state.read_bytes()
    train(replace(request_, resume=True, training={"steps": 9}))
    state.write_bytes(kept)
    train(replace(request_, resume=True, training={"steps": 12}))
    assert [row["step"] for row in log(request_.folder)] == ["3", "6", "9", "12"]


def test_statistics_stay_those_of_the_beginning(request_: Request) -> None:
    before = load_checkpoint(train(request_)).normalizers["observation.state"]
    grown = replace(request_, resume=True, dataset=Memory(episodes=9), training={"steps": 7})
    after = load_checkpoint(train(grown)).normalizers["observation.state"]
    np.testing.assert_array_equal(before.offset, after.offset)


def test_the_frozen_encoder_is_stored_exactly_in_half_the_space(request_: Request, encoder: Path) -> None:
    from safetensors import safe_open

    from vla_simd_ros.training.text_source import round_to_bfloat16

    folder = train(request_)
    name = "encoder.layer.0.output.dense.weight"
    published = load_file(encoder / "model.safetensors")[name]
    stored = load_checkpoint(folder).tensors[f"model.text.model.{name}"]
    np.testing.assert_array_equal(stored, round_to_bfloat16(published))
    with safe_open(folder / "model.safetensors", "np") as file:
        assert file.get_slice(f"model.text.model.{name}").get_dtype() == "BF16"
        assert file.get_slice("model.action_head.weight").get_dtype() == "F32"


def test_an_interrupt_keeps_what_was_learned(request_: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    from vla_simd_ros.training.trainer import Trainer

    step = Trainer._train_step

    def interrupted(trainer: Trainer) -> dict[str, float]:
        if trainer.step == 2:
            raise KeyboardInterrupt
        return step(trainer)

    monkeypatch.setattr(Trainer, "_train_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(request_)
    monkeypatch.undo()
    said: list[str] = []
    train(replace(request_, resume=True), said)
    assert any("from step 2" in line for line in said)


@pytest.mark.parametrize("policy", ["impact", "act"])
def test_nothing_of_a_step_is_left_on_the_cpu(
    request_: Request, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On PyTorch's device for shapes alone, which refuses tensors of the CPU as a GPU does."""
    import torch

    from vla_simd_ros.training.session import Session

    training = {**TRAINING, "image_shift": 1, "image_brightness": 0.1, "state_noise": 0.01}
    session = Session(replace(request_, policy=policy, training=training, device="meta"), lambda text: None)
    # It holds no values: every loss is 1.
    monkeypatch.setattr(torch.Tensor, "item", lambda tensor: 1.0)
    trainer = session._trainer
    assert trainer._train_step() == {"loss": 1.0, "l1": 1.0, "kl": 1.0}
    held_out = trainer._held_out.batch(trainer._held_out.rows[:2])
    assert session._policy.predict(held_out.inputs).device.type == "meta"
    places = {p.grad.device.type for p in session._policy.parameters() if p.grad is not None}
    assert places == {"meta"} and trainer.step == 1


def test_a_device_that_is_not_there_is_named_before_pictures_are_decoded(request_: Request) -> None:
    from vla_simd_ros.training.recipe import RecipeError

    for device in ("cuda:63", "graphics"):
        with pytest.raises(RecipeError, match=f"device '{device}' cannot be used .*, expected cpu or one"):
            train(replace(request_, device=device))
    assert not request_.folder.exists()


def test_pictures_are_resized_on_request(request_: Request) -> None:
    folder = train(replace(request_, image_size=(HEIGHT // 2, WIDTH // 2)))
    assert load_checkpoint(folder).cameras["front"].shape == (3, HEIGHT // 2, WIDTH // 2)


def test_what_does_not_fit_is_named(request_: Request) -> None:
    from vla_simd_ros.training.recipe import RecipeError

    with pytest.raises(RecipeError, match=r"train_config.json: no such file, expected the record"):
        train(replace(request_, resume=True))
    train(request_)
    with pytest.raises(RecipeError, match="holds a run already; --resume goes on with it"):
        train(request_)
    with pytest.raises(RecipeError, match="is of a run of impact, expected act"):
        train(replace(request_, resume=True, policy="act"))
    with pytest.raises(RecipeError, match=r"training_state.pt: does not fit this policy"):
        train(replace(request_, resume=True, settings={"dim_model": 32}))
