"""LeRobot's own pi0-FAST with its own processors (LeRobot 0.6 and later)."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt

from vla_simd_ros.checkpoints import Checkpoint
from vla_simd_ros.checkpoints.fast_tokenizer import ACTION_TOKENIZER_FOLDER, PROCESSOR_CONFIG
from vla_simd_ros.checkpoints.json_file import read_json_object
from vla_simd_ros.fidelity.cases import Case
from vla_simd_ros.fidelity.errors import UnavailableReferenceError
from vla_simd_ros.fidelity.lerobot_act import HOW
from vla_simd_ros.fidelity.replaced_names import ReplacedNames

Array = npt.NDArray[Any]

_BODY = "model.paligemma_with_expert.paligemma."
_EMBEDDINGS = f"{_BODY}model.language_model.embed_tokens.weight"


class LeRobotPi0Fast:
    """pi0-FAST as LeRobot has it, in the sizes of the checkpoint, every weight required, in ``dtype``.

    In float64 everything is float64, but for the angles of rotary positions, which LeRobot defines in
    float32.
    """

    def __init__(self, checkpoint: Checkpoint, instruction: str, dtype: type[np.floating[Any]]) -> None:
        try:
            import torch
            from lerobot.policies.factory import make_pre_post_processors
            from lerobot.policies.pi0_fast import modeling_pi0_fast
            from lerobot.processor import tokenizer_processor
        except ImportError as error:
            raise UnavailableReferenceError(f"LeRobot cannot be imported ({error}); {HOW}") from None
        self._torch = torch
        self._cameras = checkpoint.cameras
        self._instruction = instruction
        self._dtype = torch.float64 if dtype is np.float64 else torch.float32
        config = _config(checkpoint)
        # LeRobot prints while it loads; standard output is for results.
        with contextlib.ExitStack() as changes:
            changes.enter_context(contextlib.redirect_stdout(sys.stderr))
            for module in (modeling_pi0_fast, tokenizer_processor):
                changes.enter_context(_tokenizers(checkpoint, module))
            changes.enter_context(_sizes(checkpoint, modeling_pi0_fast))
            self._policy = modeling_pi0_fast.PI0FastPolicy(config).eval().to(self._dtype)
            self._before, self._after = make_pre_post_processors(
                config,
                pretrained_path=str(checkpoint.folder),
                preprocessor_overrides={"device_processor": {"device": "cpu"}},
            )
        stored = {name: torch.from_numpy(checkpoint.weights[name]) for name in checkpoint.weights}
        stored.setdefault(_EMBEDDINGS, stored[f"{_BODY}lm_head.weight"])
        self._policy.load_state_dict(stored, strict=True)

    def token_ids(self, case: Case) -> list[int]:
        """The prompt as LeRobot writes it."""
        prepared = self._prepared(case)
        ids: list[int] = prepared["observation.language.tokens"][0].tolist()
        return ids[: int(prepared["observation.language.attention_mask"].sum())]

    def tokens(self, case: Case) -> list[int]:
        """The tokens of the answer, the one that ends it included."""
        end = self._policy._paligemma_tokenizer.convert_tokens_to_ids("|")
        with self._precise():
            prepared = self._prepared(case)
            found: list[int] = self._policy.model.sample_actions_fast_kv_cache(
                *self._seen(prepared), max_decoding_steps=self._policy.config.max_decoding_steps
            )[0].tolist()
        return found[: found.index(end) + 1] if end in found else found

    def scores(self, case: Case, tokens: list[int]) -> Array:
        """The scores of what follows the prompt and each of ``tokens``."""
        torch, model = self._torch, self._policy.model
        with torch.no_grad(), self._precise():
            images, image_masks, words, masks = self._seen(self._prepared(case))
            begin = torch.tensor([[self._policy._paligemma_tokenizer.bos_token_id]])
            words, masks = torch.cat([words, begin], 1), torch.cat([masks, torch.ones_like(begin).bool()], 1)
            given = torch.tensor([tokens], dtype=torch.long)
            x, valid, seen, *_ = model.embed_prefix_fast(
                images, image_masks, words, masks, given, torch.ones_like(given).bool()
            )
            (out, _), _ = model.paligemma_with_expert.forward(
                attention_mask=_additive(seen, x.dtype),
                position_ids=torch.cumsum(valid, 1) - 1,
                inputs_embeds=[x, None],
                use_cache=False,
            )
            scores: Array = model.paligemma_with_expert.paligemma.lm_head(out[0, -1 - len(tokens) :]).numpy()
        return scores

    def predict(self, case: Case) -> Array:
        """Actions ``[chunk, A]`` in robot units."""
        with self._precise():
            chunk = self._policy.predict_action_chunk(self._prepared(case))
            actions: Array = self._after(chunk)[0].numpy()
        return actions

    def _prepared(self, case: Case) -> dict[str, Any]:
        """What LeRobot makes of a raw observation."""
        torch, observation = self._torch, case.observation
        batch: dict[str, Any] = {
            self._cameras[name].name: self._frame(image) for name, image in observation.images.items()
        }
        batch["observation.state"] = torch.from_numpy(observation.state)
        batch["task"] = self._instruction
        prepared: dict[str, Any] = self._before(batch)
        return prepared

    def _seen(self, prepared: dict[str, Any]) -> tuple[Any, ...]:
        words, masks = (prepared[f"observation.language.{name}"] for name in ("tokens", "attention_mask"))
        return (*self._policy._preprocess_images(prepared), words, masks.bool())

    def _frame(self, image: npt.NDArray[np.uint8]) -> Any:
        """Channels first, 0 to 1, as LeRobot's datasets and robots give them."""
        return self._torch.from_numpy(image).permute(2, 0, 1).contiguous().to(self._dtype) / 255

    def _precise(self) -> contextlib.AbstractContextManager[None]:
        return _in_float64() if self._dtype is self._torch.float64 else contextlib.nullcontext()


def reference(checkpoint: Checkpoint, instruction: str, dtype: type[np.floating[Any]]) -> LeRobotPi0Fast:
    """See :mod:`vla_simd_ros.fidelity.references`."""
    return LeRobotPi0Fast(checkpoint, instruction, dtype)


def _config(checkpoint: Checkpoint) -> Any:
    """LeRobot's configuration, without the fields that it does not know."""
    from dataclasses import fields

    from lerobot.configs import FeatureType, NormalizationMode, PolicyFeature
    from lerobot.policies.pi0_fast.configuration_pi0_fast import PI0FastConfig

    known = {field.name for field in fields(PI0FastConfig) if field.init}
    given = {name: value for name, value in checkpoint.config.items() if name in known}
    for group in ("input_features", "output_features"):
        given[group] = {
            name: PolicyFeature(FeatureType(entry["type"]), tuple(entry["shape"]))
            for name, entry in given[group].items()
        }
    modes = given["normalization_mapping"].items()
    given["normalization_mapping"] = {kind: NormalizationMode(mode) for kind, mode in modes}
    given["image_resolution"] = tuple(given["image_resolution"])
    return PI0FastConfig(**given)


@contextlib.contextmanager
def _tokenizers(checkpoint: Checkpoint, module: ModuleType) -> Iterator[None]:
    """The tokenizers of the checkpoint's folder in the place of those on a hub."""
    from transformers import PreTrainedTokenizerFast

    def tokenizer(file: Path, **marks: Any) -> Any:
        return PreTrainedTokenizerFast(tokenizer_file=str(file), **marks)

    def text(*_: object, **__: object) -> Any:
        return tokenizer(checkpoint.folder / "tokenizer.json", bos_token="<bos>", pad_token="<pad>")

    def actions(*_: object, **__: object) -> Any:
        folder = (
            checkpoint.named_folder("action_tokenizer_name") or checkpoint.folder / ACTION_TOKENIZER_FOLDER
        )
        config = read_json_object(folder / PROCESSOR_CONFIG)
        words = tokenizer(folder / "tokenizer.json", clean_up_tokenization_spaces=False)
        return SimpleNamespace(bpe_tokenizer=words, min_token=config["min_token"], scale=config["scale"])

    with (
        mock.patch.object(module, "AutoTokenizer", SimpleNamespace(from_pretrained=text)),
        mock.patch.object(module, "AutoProcessor", SimpleNamespace(from_pretrained=actions)),
    ):
        yield


@contextlib.contextmanager
def _sizes(checkpoint: Checkpoint, module: ModuleType) -> Iterator[None]:
    """LeRobot's network in the sizes of this checkpoint, where it says other ones than the published."""
    made = module.PaliGemmaForConditionalGenerationWithPiGemma
    sizes = checkpoint.config.get("paligemma", {})
    text, vision = sizes.get("text_config", {}), dict(sizes.get("vision_config", {}))

    def sized(config: Any) -> Any:
        for owner, values in ((config.text_config, text), (config.vision_config, vision)):
            for name, value in values.items():
                setattr(owner, name, value)
        if vision:
            config.vision_config.image_size = checkpoint.config["image_resolution"][0]
            config.vision_config.projection_dim = config.text_config.hidden_size
        return made(config=config)

    with mock.patch.object(module, "PaliGemmaForConditionalGenerationWithPiGemma", sized):
        yield


def _additive(seen: Any, dtype: Any) -> Any:
    from lerobot.policies.common.vla_utils import prepare_attention_masks_4d

    return prepare_attention_masks_4d(seen, dtype=dtype)


@contextlib.contextmanager
def _in_float64() -> Iterator[None]:
    """LeRobot's pi0-FAST made to compute in float64 what it converts to float32 for the purpose."""
    import torch
    from lerobot.policies import pi_gemma
    from lerobot.policies.common import vla_utils
    from lerobot.policies.pi0_fast import modeling_pi0_fast
    from transformers.models.gemma import modeling_gemma

    wide = ReplacedNames(torch, float32=torch.float64)

    def norm(self: Any, x: Any, cond: Any = None) -> tuple[Any, None]:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * (1 + self.weight), None

    with contextlib.ExitStack() as changes:
        for module in (modeling_pi0_fast, vla_utils, modeling_gemma):
            changes.enter_context(mock.patch.object(module, "torch", wide))
        changes.enter_context(mock.patch.object(pi_gemma.PiGemmaRMSNorm, "forward", norm))
        yield
