"""The commands on a policy that spells its actions in tokens, and their options for decoders."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest
from small_checkpoints import small_options

from vla_simd_ros.checkpoints.synthesis import make_checkpoint
from vla_simd_ros.cli.__main__ import main
from vla_simd_ros.cli.arguments import add_decoder, decoder_conditions, decoder_options
from vla_simd_ros.decoding.decoders import DEFAULT_OPTIONS, DecoderOptions


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    made: Path = tmp_path_factory.mktemp("tokens") / "policy"
    make_checkpoint("impact_tokens", made, small_options("impact_tokens"))
    return str(made)


def test_check_compares_scores_and_tokens(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "check.json"
    options = ("--reference", "float64", "--observations", "1", "--threads", "1", "--trace")
    assert main(["check", folder, *options, "--json", str(file)]) == 0
    text = capsys.readouterr().out
    assert "output 'scores' 30x21" in text
    assert "1 of 1 chunks have the tokens of the reference in float64" in text
    assert "head.scores @30" in text and "no tensor departs" in text
    (scores,) = json.loads(file.read_text())["outputs"]
    assert scores["passed"] and scores["tokens"] == {"chunks": 1, "same": 1, "margin": 0.0}


def test_inspect_says_how_actions_are_spelled(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", folder, "--tokens", "3", "--threads", "1"]) == 0
    text = capsys.readouterr().out
    # A token for the latent and one for the state, 2 x 2 for each camera, and the text.
    assert text.startswith("actions are spelled in 30 tokens, of 21 there are, behind a prefix of 13 rows;")
    assert "30 times a query" in text and "cached_attention" in text


def test_supply_measures_with_a_decoder(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    decoder = ("--decoder", "jacobi", "--block", "6")
    assert main(["supply", folder, "--queries", "3", "--threads", "1", *decoder]) == 0
    assert "decoder jacobi, block 6" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("bench {folder} --peers onnxruntime", "no peer runs 'impact_tokens': its programs keep keys and"),
        (
            "bench {folder} --decoders jacobi,fast",
            "decoder 'fast' is unknown, expected one of autoregressive",
        ),
        ("bench {folder} --decoders jacobi,jacobi", "decoders jacobi, jacobi: one is given more than once"),
        ("supply {folder} --num-steps 3", "the policy 'impact_tokens' has no solver, it takes no num_steps"),
        ("supply {folder} --seed 3", "seed is 3, but the policy 'impact_tokens' draws no noise"),
    ],
)
def test_what_cannot_be_is_said(
    folder: str, command: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command.format(folder=folder).split()) == 2
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error


def parsed(*arguments: str, lists: bool = False) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_decoder(parser, lists=lists)
    return parser.parse_args(arguments)


def test_options_of_a_decoder() -> None:
    assert decoder_options(parsed()) == DEFAULT_OPTIONS
    given = ("--decoder", "early_exit", "--sigma", "0.7", "--block", "4", "--max-passes", "3")
    seeds = ("--initialization", "repeat", "--decoder-seed", "5")
    expected = DecoderOptions("early_exit", 0.7, 3, 4, "repeat", 5)
    assert decoder_options(parsed(*given, *seeds)) == expected


def test_lists_of_decoders() -> None:
    given = parsed("--decoder", "jacobi, early_exit", "--sigma", "0.4,0.6", "--block", "4", lists=True)
    assert [str(each) for each in decoder_conditions(given, given.decoder)] == [
        "jacobi, block 4",
        "early_exit, sigma 0.4, block 4",
        "early_exit, sigma 0.6, block 4",
    ]
    assert decoder_conditions(parsed(lists=True), "auto") == (DEFAULT_OPTIONS,)
