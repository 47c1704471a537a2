"""pi0-FAST against LeRobot's own: prompts, tokens, scores and actions of small networks, and the shapes of
the full-size one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from vla_simd_ros.checkpoints.synthesis import Camera, Options, default_options
from vla_simd_ros.checkpoints.synthesis import pi0_fast as synthesis
from vla_simd_ros.executors.simd_executor import SimdExecutor
from vla_simd_ros.fidelity import lerobot_pi0_fast
from vla_simd_ros.fidelity.cases import random_cases
from vla_simd_ros.fidelity.measure import BOUND, distance
from vla_simd_ros.graph.ir import Lifetime
from vla_simd_ros.inference import Policy

TEXT = " pick_up the red cube\nand put it into the box"
SIZES = {
    "dim_model": 48,
    "heads": 4,
    "feedforward": 80,
    "encoder_layers": 3,
    "decoder_layers": 2,
    "chunk_size": 8,
}
SMALL: dict[str, Any] = {
    "image_resolution": [28, 28],
    "paligemma.vision_config.hidden_size": 24,
    "paligemma.vision_config.intermediate_size": 40,
    "paligemma.vision_config.num_attention_heads": 3,
    "paligemma.vision_config.patch_size": 7,
    "paligemma.text_config.head_dim": 16,
    "paligemma.text_config.vocab_size": 800,
    "fast_words": 250,
    "fast_skip_tokens": 16,
    "max_decoding_steps": 24,
    "tokenizer_max_length": 90,
}
TWO = (Camera("front", 40, 56), Camera("wrist", 48, 30))
# Actions keep to the bound of all policies. Of the tens of thousands of scores behind them the farthest is
# 1.7e-6 to 2.1e-6 of the largest away, as the instruction set will have it.
SCORE_BOUND = 3e-6
RANGES = {"normalization_mapping.STATE": "QUANTILES", "normalization_mapping.ACTION": "MIN_MAX"}


@pytest.mark.parametrize(
    "options",
    [
        Options(seed=1, cameras=TWO, sizes=SIZES, settings=SMALL),
        Options(
            seed=2,
            cameras=(Camera("top", 28, 28),),
            state_dim=14,
            action_dim=14,
            dtype="bf16",
            sizes=SIZES,
            settings={**SMALL, **RANGES, "n_action_steps": 5, "paligemma.text_config.num_key_value_heads": 2},
        ),
        Options(
            seed=3,
            cameras=(*TWO, Camera("side", 31, 90)),
            action_dim=3,
            sizes=SIZES,
            settings={**SMALL, "fast_skip_tokens": 0, "max_decoding_steps": 40, "use_kv_cache": False},
        ),
    ],
    ids=["two_cameras", "one_camera", "three_cameras"],
)
def test_prompts_tokens_scores_and_actions(bench: Any, options: Options) -> None:
    checkpoint = bench.checkpoint("pi0_fast", options)
    policy = Policy(checkpoint, SimdExecutor(convolution="exact", linear="direct"))
    policy.set_instruction(TEXT)
    single, double = (
        lerobot_pi0_fast.reference(checkpoint, TEXT, dtype) for dtype in (np.float32, np.float64)
    )
    for case in random_cases(checkpoint, 2, seed=0):
        given = policy.request(case.observation)
        prompt = double.token_ids(case)
        np.testing.assert_array_equal(given.values["prompt_ids"][: len(prompt)], prompt)
        tokens = double.tokens(case)
        query = policy.query(case.observation)
        assert query.decoded is not None
        assert list(query.decoded.tokens) == tokens == single.tokens(case)
        for reference in (double, single):
            assert distance(query.actions, reference.predict(case)).relative <= BOUND
            scores = engine_scores(policy, len(prompt), tokens)
            assert distance(scores, reference.scores(case, tokens)).relative <= SCORE_BOUND


def engine_scores(policy: Policy, prompt: int, tokens: list[int]) -> np.ndarray:
    """The scores behind the prompt and the tokens, the query program having run."""
    spelled = policy.action_tokens
    assert spelled is not None
    rows = []
    for place, token in enumerate([spelled.first, *tokens], spelled.prefix_rows(prompt)):
        step = {"step_ids": np.array([token], np.int32), "step_positions": np.array([place], np.int32)}
        rows.append(policy.executable.run(Lifetime.STEP, step)["scores"][0])
    return np.stack(rows)


@pytest.mark.usefixtures("hollow_weights")
def test_random_checkpoints_of_full_size_have_lerobot_s_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    from lerobot.policies.pi0_fast.configuration_pi0_fast import PI0FastConfig
    from lerobot.policies.pi0_fast.modeling_pi0_fast import PI0FastPytorch

    def words(count: int) -> dict[str, Any]:
        return {"model": {"vocab": {"|": 7}}}

    # Its quarter of a million words are of no interest here.
    monkeypatch.setattr(synthesis, "gemma_tokenizer", words)
    made = synthesis.pi0_fast_recipe(default_options("pi0_fast", full_size=True)).tensors
    with torch.device("meta"):
        network = PI0FastPytorch(PI0FastConfig())
    expected = {f"model.{name}": tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    # One table has two names there.
    del expected["model.paligemma_with_expert.paligemma.model.language_model.embed_tokens.weight"]
    assert {name: values.shape for name, values in made.items()} == expected
