from __future__ import annotations

import pytest

from vla_simd_ros.benchmarks import backend
from vla_simd_ros.benchmarks.backend import BenchmarkError


def test_peers_are_known_by_name() -> None:
    backend.check_peers([])
    backend.check_peers(["openvino", "torch-eager", "torch-compile", "onnxruntime"])
    with pytest.raises(
        BenchmarkError, match="unknown peer 'tvm', expected some of torch-eager, torch-compile"
    ):
        backend.check_peers(["openvino", "tvm"])


@pytest.mark.parametrize("name", [backend.OURS, backend.REFERENCE])
def test_what_is_no_peer_is_unknown(name: str) -> None:
    with pytest.raises(BenchmarkError, match="unknown peer"):
        backend.check_peers([name])


def test_a_peer_counts_once() -> None:
    with pytest.raises(BenchmarkError, match="'openvino' is given more than once"):
        backend.check_peers(["openvino", "openvino"])


def test_a_missing_package_names_the_extra() -> None:
    with pytest.raises(
        BenchmarkError, match=r"'openvino' needs the package 'not_there'.*vla_simd_ros\[bench\]"
    ):
        backend.require("not_there", "openvino")


def test_a_present_package_is_imported() -> None:
    assert backend.require("json", "any").loads("1") == 1


def test_factories_are_found_by_name() -> None:
    assert backend.resolve("vla_simd_ros.benchmarks.backend:Setup") is backend.Setup
