"""BERT's tokenization and encoder against the transformers library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch
from transformers import AutoTokenizer, BertConfig, BertModel

from vla_simd_ros.checkpoints.errors import CheckpointError
from vla_simd_ros.checkpoints.synthesis.folder import write_file
from vla_simd_ros.checkpoints.synthesis.wordpiece_vocabulary import TOKENIZER_SETTINGS, bert_tokenizer
from vla_simd_ros.checkpoints.tensors import TensorFile
from vla_simd_ros.checkpoints.tokenizer import load_tokenizer
from vla_simd_ros.executors.reference_executor import run_graph
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import DType, Lifetime
from vla_simd_ros.policies.blocks.bert import bert_encoder, read_bert_config
from vla_simd_ros.policies.blocks.stated import Stated
from vla_simd_ros.policies.weights import Weights
from vla_simd_ros.training.bert import BertConfig as OurConfig
from vla_simd_ros.training.bert import BertEncoder
from vla_simd_ros.training.text_source import packaged_encoder, read_text_source, round_to_bfloat16

INSTRUCTIONS = [
    "Put the tape into the box.",
    "  open   the top\tdrawer\n",
    "caf\u00e9 cafe\u0301 \ufb01ne \u2460 \uff46\uff55\uff4c\uff4c",
    "unknown \u6f22\u5b57 \U0001f916 text",
    "[MASK] and [SEP] [CLS] [PAD] [UNK]",
    "no\u00a0break\u3000wide \u200b zero",
    "control \x01\x02 characters \u200e",
    "a " * 60,
    "unbraidably re-stacked, isn't it?",
    "UPPER lower 0123456789 !\"#$%&'()*+,-./:;<=>?@[]^_`{|}~",
    "x" * 150,
    "",
]


def write(folder: Path, form: str, settings: dict[str, Any]) -> Path:
    content = bert_tokenizer(900)
    if form == "vocab.txt":
        (folder / form).write_text("\n".join(content["model"]["vocab"]) + "\n", encoding="utf-8")
    else:
        (folder / form).write_text(json.dumps(content), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps({"model_type": "bert"}))
    return folder


@pytest.mark.parametrize("length", [2, 5, 32, 200])
@pytest.mark.parametrize("text", INSTRUCTIONS)
@pytest.mark.parametrize("form", ["tokenizer.json", "vocab.txt"])
def test_ids(tmp_path: Path, form: str, text: str, length: int) -> None:
    folder = write(tmp_path, form, TOKENIZER_SETTINGS)
    theirs = AutoTokenizer.from_pretrained(folder)

    expected = theirs(text, truncation=True, max_length=length)["input_ids"]
    assert load_tokenizer([folder], length).encode(text) == expected


@pytest.mark.parametrize(
    "settings", [{"do_lower_case": False}, {"strip_accents": False}, {"tokenize_chinese_chars": False}]
)
@pytest.mark.parametrize("text", INSTRUCTIONS)
def test_settings_of_a_vocabulary(tmp_path: Path, settings: dict[str, bool], text: str) -> None:
    folder = write(tmp_path, "vocab.txt", {**TOKENIZER_SETTINGS, **settings})
    theirs = AutoTokenizer.from_pretrained(folder)

    assert (
        load_tokenizer([folder], 64).encode(text) == theirs(text, truncation=True, max_length=64)["input_ids"]
    )


def sizes(vocabulary: int) -> dict[str, Any]:
    return {
        **{"vocab_size": vocabulary, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4},
        **{"intermediate_size": 96, "max_position_embeddings": 40},
    }


@pytest.mark.parametrize("length", [2, 9, 32])
def test_encoder_has_the_states_of_transformers(length: int) -> None:
    torch.manual_seed(length)
    theirs = BertModel(BertConfig(**sizes(900)), add_pooling_layer=False).double().eval()
    ours = BertEncoder(OurConfig(**sizes(900))).double().eval()
    ours.load_state_dict(theirs.state_dict())

    ids = torch.randint(5, 900, (2, 32))
    mask = torch.arange(32)[None, :] < torch.tensor([[length], [32]])
    with torch.no_grad():
        expected = theirs(input_ids=ids, attention_mask=mask.long()).last_hidden_state
        states = ours(ids, mask)
    torch.testing.assert_close(states[mask], expected[mask], rtol=0, atol=1e-9)


def minilm_or_random(folder: Path) -> Path:
    try:
        return packaged_encoder()
    except CheckpointError:
        torch.manual_seed(0)
        random = folder / "random"
        random.mkdir()
        write(random, "vocab.txt", TOKENIZER_SETTINGS)
        config = {"model_type": "bert", **sizes(900)}
        (random / "config.json").write_text(json.dumps(config))
        model = BertModel(BertConfig(**sizes(900)), add_pooling_layer=False)
        save_torch(model.state_dict(), random / "model.safetensors")
        return random


def test_the_graph_has_the_states_of_minilm(tmp_path: Path) -> None:
    """Real weights where their package is installed, random ones of another size where it is not."""
    folder = minilm_or_random(tmp_path)
    source = read_text_source(folder, ["Put the red cube on the left pad."], 16)
    reference = BertModel(BertConfig(**source.config), add_pooling_layer=False).eval()
    rounded = {name: torch.from_numpy(round_to_bfloat16(v)) for name, v in source.weights.items()}
    reference.load_state_dict(rounded)
    for name, content in source.tokenizer_files.items():
        write_file(tmp_path / "out" / name, content)
    ids = load_tokenizer([tmp_path / "out"], 16).encode("Put the red cube on the left pad.")

    save_file({name: v.numpy() for name, v in rounded.items()}, tmp_path / "encoder.safetensors")
    b = Builder()
    given = b.input("ids", (len(ids),), DType.I32, Lifetime.EPISODE)
    weights = Weights(TensorFile(tmp_path / "encoder.safetensors"))
    config = read_bert_config(Stated(source.config, "minilm"))
    b.output("states", bert_encoder(b, given, config, weights))
    graph = b.graph()
    states = run_graph(graph, {"ids": np.array(ids, np.int32)})[graph.outputs["states"]]

    with torch.no_grad():
        expected = reference.double()(input_ids=torch.tensor([ids])).last_hidden_state[0].numpy()
    assert np.abs(states - expected).max() < 1e-5 * np.abs(expected).max()
