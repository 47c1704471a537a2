from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_checkpoints import with_config

from vla_simd_ros.checkpoints import Checkpoint, CheckpointError, load_checkpoint
from vla_simd_ros.decoding.base import DecodingError
from vla_simd_ros.executors.reference_executor import ReferenceExecutor
from vla_simd_ros.executors.simd_executor import SimdExecutor
from vla_simd_ros.fidelity.cases import random_cases
from vla_simd_ros.fidelity.references import make_reference
from vla_simd_ros.graph.compile import compile_graph
from vla_simd_ros.graph.errors import GraphError
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.ir import Array, Lifetime
from vla_simd_ros.inference import Policy
from vla_simd_ros.policies.base import PromptedTokens
from vla_simd_ros.policies.pi0_fast import Pi0FastPolicy
from vla_simd_ros.policies.registry import define_policy

Open = Callable[..., Checkpoint]
TEXT = "put_the tape\ninto the box"
# Words of the small vocabulary: 800, of which the last 16 stand for none and 200 before them for FAST's.
HIGHEST, LOWEST = 783, 584
PATCHES = 2 * 16


@pytest.fixture(scope="module")
def policy(checkpoint: Open) -> Pi0FastPolicy:
    return Pi0FastPolicy(checkpoint("pi0_fast"))


def written(opened: Checkpoint, state: Array, text: str = TEXT, tokens: int = 60) -> str:
    """The prompt that the query program is given, as text."""
    tokenizer = opened.tokenizer()
    given, count = Pi0FastPolicy(opened).action_tokens.prompt(text, tokens, {"state": state})
    backend = tokenizer._backend
    assert [backend.id_to_token(int(i)) for i in given["prompt_ids"][[0, count]]] == ["<bos>", "<bos>"]
    assert (given["prompt_hidden"] == 0).sum() == count + 1
    assert not given["prompt_ids"][count + 1 :].any()
    return "".join(backend.id_to_token(int(i)) for i in given["prompt_ids"][1:count]).replace("▁", " ")


def test_what_it_takes_and_gives(policy: Pi0FastPolicy) -> None:
    spec = policy.spec
    assert list(spec.cameras) == ["front", "wrist"]
    assert (spec.state_dim, spec.action_dim, spec.chunk_size) == (6, 6, 5)
    assert (spec.uses_instruction, spec.max_instruction_tokens) == (True, 60)
    tokens = policy.action_tokens
    assert isinstance(tokens, PromptedTokens)
    assert (tokens.vocabulary, tokens.count, len(tokens.stop)) == (800, 12, 1)
    assert tokens.prefix_rows(30) == PATCHES + 30


def test_the_prompt_tells_the_state_in_256_shares(checkpoint: Open) -> None:
    opened = checkpoint("pi0_fast")
    normalizer = opened.normalizers["observation.state"]
    scaled = np.array([[-1.01, -1, -0.001, 0, 0.999, 7]], np.float32)
    told = written(opened, scaled * normalizer.divisor + normalizer.offset)
    assert told == "Task: put the tape into the box, State: -1 0 127 128 255 255;\n"


def test_a_long_instruction_leaves_room_for_the_state(checkpoint: Open) -> None:
    opened = checkpoint("pi0_fast")
    told = written(opened, np.zeros((1, 6), np.float32), "put the tape into the box " * 9)
    assert told.startswith("Task: put the tape into the box put")
    assert told.endswith(";\n")
    cut = opened.tokenizer().tokenize("put the tape into the box " * 9)
    assert cut.truncated
    assert len(cut.ids) <= 60


def opening(policy: Pi0FastPolicy, opened: Checkpoint) -> list[int]:
    return opened.tokenizer().words("Action: ")


def test_words_are_fast_s_counted_from_the_end(checkpoint: Open) -> None:
    opened = checkpoint("pi0_fast", settings={"validate_action_token_prefix": True})
    policy = Pi0FastPolicy(opened)
    tokens, begin = policy.action_tokens, opening(policy, opened)
    (end,) = tokens.stop
    # Numbers 0, 1, 2 of FAST's are the frequencies -60, -59, -58, in tenths.
    frequencies = np.zeros((5, 6))
    frequencies[0, :3] = -6.0, -5.9, -5.8
    unnormalizer = opened.unnormalizers["action"]
    constant = frequencies[0] / np.sqrt(5) * unnormalizer.scale + unnormalizer.offset
    spelled = [*begin, HIGHEST, HIGHEST - 1, HIGHEST - 2]
    for answer in (spelled, [*spelled, end], [*spelled, end, HIGHEST, 0], [*spelled, *begin, end]):
        got = tokens.actions(answer)
        assert (got.dtype, got.shape) == (np.float32, (5, 6))
        np.testing.assert_allclose(got, np.tile(constant, (5, 1)), atol=1e-6)


@pytest.mark.parametrize("token", [0, LOWEST - 1, HIGHEST + 1, 799])
def test_words_that_are_none_of_fast_s_are_no_action(policy: Pi0FastPolicy, token: int) -> None:
    message = f"token {token} at place 1 stands for no action, expected {LOWEST} to {HIGHEST}"
    with pytest.raises(DecodingError, match=message):
        policy.action_tokens.actions([HIGHEST, token])


def test_an_answer_that_does_not_begin_as_one_is_refused(checkpoint: Open) -> None:
    opened = checkpoint("pi0_fast", settings={"validate_action_token_prefix": True})
    with pytest.raises(
        DecodingError, match=r"the answer begins with tokens .*783, 783.*, expected .*'Action:'"
    ):
        Pi0FastPolicy(opened).action_tokens.actions([HIGHEST, HIGHEST, HIGHEST])


@pytest.mark.parametrize("tokens", [None, 0, 61])
def test_prompts_of_another_length_are_refused(policy: Pi0FastPolicy, tokens: int | None) -> None:
    with pytest.raises(GraphError, match=f"got a prompt of {tokens} tokens, expected 1 to 60"):
        policy.build(tokens)


def test_images_and_prompt_are_read_once_a_query(policy: Pi0FastPolicy) -> None:
    programs = compile_graph(policy.build(20), FoldCache()).programs
    named = {lifetime: {op.output.name for op in program.ops} for lifetime, program in programs.items()}
    assert not named[Lifetime.EPISODE]
    assert {"prefix.1.kept", "vision.front.1.linear2.sum", "prefix.0.self_attn.attention"} <= named[
        Lifetime.QUERY
    ]
    # Nobody asks for what the last layer makes of the prefix.
    assert "prefix.1.self_attn.attention" not in named[Lifetime.QUERY]
    assert {"layers.0.self_attn.attention", "head.scores"} <= named[Lifetime.STEP]
    assert not any(name.startswith(("vision", "prefix")) for name in named[Lifetime.STEP])
    assert not programs[Lifetime.STEP].uses


def test_rows_for_a_longer_prompt_change_nothing(checkpoint: Open) -> None:
    opened = checkpoint("pi0_fast")
    policy, case = Pi0FastPolicy(opened), random_cases(opened, 1, 0)[0]
    found = []
    for tokens in (45, 60):
        given, count = policy.action_tokens.prompt(TEXT, tokens, {"state": case.observation.state[None]})
        loaded = ReferenceExecutor(np.float64).load(compile_graph(policy.build(tokens), FoldCache()))
        images = {f"image.{name}": image for name, image in case.observation.images.items()}
        loaded.run(Lifetime.EPISODE, {"token_ids": np.zeros(tokens, np.int32)})
        loaded.run(Lifetime.QUERY, {**given, **images})
        step = {"step_ids": [policy.action_tokens.first], "step_positions": [PATCHES + count]}
        found.append(loaded.run(Lifetime.STEP, {k: np.array(v, np.int32) for k, v in step.items()})["scores"])
    np.testing.assert_allclose(*found, atol=1e-12)


@pytest.mark.parametrize("decoder", ["autoregressive", "jacobi"])
def test_every_exact_decoder_gives_the_greedy_chunk(checkpoint: Open, decoder: str) -> None:
    opened = checkpoint("pi0_fast")
    cases = random_cases(opened, 2, 1)
    expected = make_reference("float64", opened, TEXT, np.float64)
    policy = Policy(opened, SimdExecutor(threads=1))
    policy.warm_up()
    policy.set_decoder(decoder)
    policy.set_instruction(TEXT)
    chunks = []
    for case in cases:
        query = policy.query(case.observation)
        assert query.decoded is not None
        assert list(query.decoded.tokens) == expected.tokens(case)  # type: ignore[attr-defined]
        np.testing.assert_allclose(query.actions, expected.predict(case), atol=1e-6)
        chunks.append(query.actions)
    assert not np.array_equal(*chunks)


def test_the_type_is_known(checkpoint: Open) -> None:
    assert isinstance(define_policy(checkpoint("pi0_fast")), Pi0FastPolicy)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"n_action_steps": 6}, r"n_action_steps is 6, expected at most chunk_size \(5\)"),
        ({"use_relative_actions": True}, "use_relative_actions is true, expected false"),
        ({"temperature": 0.5}, "temperature is 0.5, expected 0, the most likely tokens"),
        ({"image_resolution": [16]}, r"image_resolution is \[16\], expected \[height, width\]"),
        ({"image_resolution": [16, 20]}, r"image_resolution is \[16, 20\], expected \[16, 16\]"),
        ({"fast_skip_tokens": 800}, "fast_skip_tokens is 800, expected 0 to 799"),
        ({"fast_skip_tokens": 700}, "has 200 tokens, expected no more than the 100 words of"),
        ({"paligemma": {"text_config": {"head_dim": 3}}}, "head_dim is 3, expected an even divisor of 32"),
        (
            {"paligemma": {"vision_config": {"num_attention_heads": 3}}},
            r"vision_config: hidden_size is 16, expected a multiple of num_attention_heads \(3\)",
        ),
        ({"paligemma": {}}, "head_dim is 256, expected an even divisor of 32"),
        ({"action_tokenizer_name": "lerobot/fast"}, None),
        ({"max_decoding_steps": 0}, "max_decoding_steps is 0, expected 1 or more"),
        ({"tokenizer_max_length": 20}, "the longest prompt is 20 tokens, expected more than the"),
    ],
    ids=str,
)  # fmt: skip
def test_folders_that_do_not_fit_are_refused(
    checkpoint: Open, fields: dict[str, Any], message: str | None
) -> None:
    changed = with_config(checkpoint("pi0_fast"), **fields)
    if message is None:
        # The files are in their usual place.
        assert Pi0FastPolicy(changed).spec.type == "pi0_fast"
        return
    with pytest.raises(CheckpointError, match=message):
        Pi0FastPolicy(changed)


def copied(checkpoint: Open, tmp_path: Path) -> Path:
    folder = tmp_path / "copy"
    shutil.copytree(checkpoint("pi0_fast").folder, folder)
    return folder


def test_without_fast_s_files_the_error_says_where_to_put_them(checkpoint: Open, tmp_path: Path) -> None:
    folder = copied(checkpoint, tmp_path)
    shutil.rmtree(folder / "action_tokenizer")
    with pytest.raises(
        CheckpointError, match="action_tokenizer: no such folder; put the files of the tokenizer"
    ):
        Pi0FastPolicy(load_checkpoint(folder))


def test_a_vocabulary_of_another_model_is_refused(checkpoint: Open, tmp_path: Path) -> None:
    folder = copied(checkpoint, tmp_path)
    other = checkpoint("pi0_fast", settings={"paligemma.text_config.vocab_size": 900})
    shutil.copyfile(other.folder / "tokenizer.json", folder / "tokenizer.json")
    with pytest.raises(
        CheckpointError, match=r"has 900 words, expected at most 800, the rows of .*lm_head.weight"
    ):
        Pi0FastPolicy(load_checkpoint(folder))


def change_steps(folder: Path, file: str, change: Callable[[dict[str, Any]], bool]) -> None:
    """Keep the steps of a processor file for which ``change``, which may write to them, is true."""
    path = folder / file
    content = json.loads(path.read_text())
    content["steps"] = [step for step in content["steps"] if change(step)]
    path.write_text(json.dumps(content))


def test_a_preprocessor_without_the_state_s_step_is_refused(checkpoint: Open, tmp_path: Path) -> None:
    folder = copied(checkpoint, tmp_path)
    change_steps(
        folder, "policy_preprocessor.json", lambda step: "prepare_state" not in step["registry_name"]
    )
    with pytest.raises(CheckpointError, match="the preprocessor writes no prompt with the state"):
        Pi0FastPolicy(load_checkpoint(folder))


@pytest.mark.parametrize("file", ["policy_preprocessor.json", "policy_postprocessor.json"])
def test_relative_actions_are_refused(checkpoint: Open, tmp_path: Path, file: str) -> None:
    def enable(step: dict[str, Any]) -> bool:
        if "enabled" in step["config"]:
            step["config"]["enabled"] = True
        return True

    folder = copied(checkpoint, tmp_path)
    change_steps(folder, file, enable)
    with pytest.raises(CheckpointError, match="_actions_processor': enabled is true, expected false"):
        load_checkpoint(folder)


def test_a_checkpoint_without_lerobot_s_prefix_is_the_same(checkpoint: Open, tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    folder = copied(checkpoint, tmp_path)
    path = folder / "model.safetensors"
    body = "paligemma_with_expert.paligemma."
    stored = {name.removeprefix("model."): values for name, values in load_file(path).items()}
    # And with the other name of the one table.
    stored[f"{body}model.language_model.embed_tokens.weight"] = stored.pop(f"{body}lm_head.weight")
    save_file(stored, path)
    case = random_cases(checkpoint("pi0_fast"), 1, 0)[0]
    first, second = (
        make_reference("float64", opened, TEXT, np.float64)
        for opened in (checkpoint("pi0_fast"), load_checkpoint(folder))
    )
    np.testing.assert_array_equal(first.predict(case), second.predict(case))
