"""OpenVLA as its authors published it for the transformers library, which the package ``vla-arena``
carries."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt

from vla_simd_ros.checkpoints import Checkpoint
from vla_simd_ros.checkpoints.json_file import read_json_object
from vla_simd_ros.fidelity.cases import Case
from vla_simd_ros.fidelity.errors import UnavailableReferenceError
from vla_simd_ros.fidelity.replaced_names import ReplacedNames
from vla_simd_ros.policies.openvla_config import read_crop_area
from vla_simd_ros.policies.openvla_images import PREPROCESSOR_CONFIG

Array = npt.NDArray[Any]

_HOW = "pip install --no-deps vla-arena==1.0.0 timm==0.9.16, beside torch, torchvision and transformers"
_FOLDER = Path("models", "openvla", "prismatic", "extern", "hf")
_PACKAGE = "vla_simd_published_openvla"
# What the published code puts behind a prompt, Llama's number of the token that is a space on its own.
_ASKING = 29871


class OriginalOpenVla:
    """The published network with the published preprocessing; every weight of the checkpoint is used.

    Tokens are decoded one after the other, each from all before it. In float64 everything is float64, but for
    the angles of rotary positions, which are part of what was trained.
    """

    def __init__(self, checkpoint: Checkpoint, instruction: str, dtype: type[np.floating[Any]]) -> None:
        try:
            import torch
            from PIL import Image

            config, model, processing = (
                published(name)
                for name in ("configuration_prismatic", "modeling_prismatic", "processing_prismatic")
            )
        except ImportError as error:
            raise UnavailableReferenceError(
                f"OpenVLA's own code cannot be imported ({error}); {_HOW}"
            ) from None
        self._torch, self._image = torch, Image
        self._dtype = torch.float64 if dtype is np.float64 else torch.float32
        self._camera = next(iter(checkpoint.cameras))
        self._key = checkpoint.config.get("unnorm_key")
        self._crop = read_crop_area(checkpoint)
        with _towers(checkpoint, model):
            settings = config.OpenVLAConfig(**_fields(checkpoint), attn_implementation="eager")
            self._model = model.OpenVLAForActionPrediction(settings).eval().to(self._dtype)
        stored = {
            name: torch.from_numpy(checkpoint.weights[name]).to(self._dtype) for name in checkpoint.weights
        }
        self._model.load_state_dict(stored, strict=True)
        self._images = processing.PrismaticImageProcessor(
            **read_json_object(checkpoint.folder / PREPROCESSOR_CONFIG)
        )
        tokenizer = checkpoint.tokenizer()
        self._prompt = [*_prompt(checkpoint, instruction), tokenizer.token_id("▁")]

    def scores(self, case: Case, tokens: list[int]) -> Array:
        """The scores of what follows the prompt and so many ``tokens`` of the answer, of each of them."""
        torch = self._torch
        pixels = self._pixels(case)
        ids = torch.tensor([[*self._prompt, *tokens]])
        with torch.no_grad(), _precise(self._dtype):
            answer = self._model(input_ids=ids, pixel_values=pixels, return_dict=True, use_cache=False)
        scores: Array = answer.logits[0, -1 - len(tokens) :].numpy()
        return scores

    def tokens(self, case: Case) -> list[int]:
        """The tokens of the action."""
        found: list[int] = []
        for _ in range(self._model.get_action_dim(self._key)):
            found.append(int(self.scores(case, found)[-1].argmax()))
        return found

    def predict(self, case: Case) -> Array:
        """The action ``[1, A]`` in robot units, as the published code makes it of tokens."""
        torch = self._torch
        answer = torch.tensor([self.tokens(case)])
        with mock.patch.object(type(self._model), "generate", lambda *_, **__: answer, create=True):
            action = self._model.predict_action(torch.tensor([[_ASKING]]), unnorm_key=self._key)
        return np.asarray(action)[None]

    def _pixels(self, case: Case) -> Any:
        image = case.observation.images[self._camera]
        frame = self._image.fromarray(image if self._crop is None else self._middle(image, self._crop))
        return self._images(frame, return_tensors="pt")["pixel_values"].to(self._dtype)

    def _middle(self, image: Array, area: float) -> Array:
        """The part that the published evaluation shows, by PyTorch's sampling of images."""
        torch = self._torch
        reach = torch.linspace(-(area**0.5), area**0.5, self._images.input_sizes[0][-1])
        down, across = torch.meshgrid(reach, reach, indexing="ij")
        pixels = torch.from_numpy(image).permute(2, 0, 1)[None] / 255
        places = torch.stack([across, down], dim=-1)[None]
        part = torch.nn.functional.grid_sample(pixels, places, mode="bilinear", align_corners=True)[0]
        middle: Array = (part.permute(1, 2, 0) * 255.5).clamp(0, 255).to(torch.uint8).numpy()
        return middle


def reference(checkpoint: Checkpoint, instruction: str, dtype: type[np.floating[Any]]) -> OriginalOpenVla:
    """See :mod:`vla_simd_ros.fidelity.references`."""
    return OriginalOpenVla(checkpoint, instruction, dtype)


def _prompt(checkpoint: Checkpoint, instruction: str) -> list[int]:
    """The published prompt, with the mark that the transformers library puts before it."""
    import tokenizers

    backend = tokenizers.Tokenizer.from_file(str(checkpoint.folder / "tokenizer.json"))
    text = f"In: What action should the robot take to {instruction.lower()}?\nOut:"
    ids: list[int] = backend.encode(text).ids
    return ids


def published(name: str) -> ModuleType:
    """A module of the published code, without the rest of its package, which imports what robots' data
    take."""
    if _PACKAGE not in sys.modules:
        found = importlib.util.find_spec("vla_arena")
        if found is None or not found.submodule_search_locations:
            raise ImportError("no module named 'vla_arena'")
        package = ModuleType(_PACKAGE)
        package.__path__ = [str(Path(found.submodule_search_locations[0]) / _FOLDER)]
        sys.modules[_PACKAGE] = package
    _restore_moved_names()
    return importlib.import_module(f"{_PACKAGE}.{name}")


def _restore_moved_names() -> None:
    """Names of the transformers library also where they were before its version 5."""
    from transformers import tokenization_utils_base

    # The import of this one makes the old module anew.
    importlib.import_module("transformers.image_processing_utils")
    old = importlib.import_module("transformers.tokenization_utils")
    for name in ("PaddingStrategy", "PreTokenizedInput", "TextInput", "TruncationStrategy"):
        vars(old).setdefault(name, getattr(tokenization_utils_base, name))


def _fields(checkpoint: Checkpoint) -> dict[str, Any]:
    """config.json as the published code takes it, with the statistics that replace those in it."""
    own = checkpoint.folder / "dataset_statistics.json"
    replaced = {"norm_stats": read_json_object(own)} if own.is_file() else {}
    # What it makes of `vision_backbone_id` by itself.
    derived = ("timm_model_ids", "timm_override_act_layers", "image_sizes", "hf_llm_id", "model_type")
    return {name: value for name, value in {**checkpoint.config, **replaced}.items() if name not in derived}


@contextlib.contextmanager
def _towers(checkpoint: Checkpoint, model: ModuleType) -> Iterator[None]:
    """timm's models in the sizes of this checkpoint, where it says other ones than theirs."""
    import timm

    sizes = checkpoint.config.get("timm_model_args", {})
    names = ("featurizer", "fused_featurizer")
    args = dict(
        zip(checkpoint.config["timm_model_ids"], (sizes.get(name, {}) for name in names), strict=False)
    )
    side = checkpoint.config["image_sizes"][0]

    def made(name: str, **given: Any) -> Any:
        return timm.create_model(name, **{**given, "img_size": side, **args[name]})

    with untied(model), mock.patch.object(model, "timm", ReplacedNames(timm, create_model=made)):
        yield


def untied(model: ModuleType) -> contextlib.AbstractContextManager[object]:
    """No weights are tied: later versions of the transformers library ask for it with more than the code
    takes."""
    return mock.patch.object(model.PrismaticForConditionalGeneration, "tie_weights", lambda *_, **__: None)


@contextlib.contextmanager
def _precise(dtype: Any) -> Iterator[None]:
    """In float64, what the network's text layers convert to float32 for precision stays float64."""
    import torch
    from transformers.models.llama import modeling_llama

    replaced = {"float32": torch.float64} if dtype is torch.float64 else {}
    with mock.patch.object(modeling_llama, "torch", ReplacedNames(torch, **replaced)):
        yield
