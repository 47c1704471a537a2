"""What the frozen text encoder makes of a dataset's sentences, once for each."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from vla_simd_ros.checkpoints.tokenizer import Tokenizer
from vla_simd_ros.training.impact import ImpactEncoder, ImpactInputs


@torch.no_grad()
def encode_sentences(
    model: ImpactEncoder, tokenizer: Tokenizer, sentences: Sequence[str]
) -> dict[str, Tensor]:
    """States of each sentence and which rows are no padding, as `ImpactInputs` takes them."""
    ids = [tokenizer.encode(sentence) for sentence in sentences]
    longest = max(map(len, ids))
    padded = torch.tensor([row + [0] * (longest - len(row)) for row in ids])
    mask = torch.tensor([[True] * len(row) + [False] * (longest - len(row)) for row in ids])
    device = next(model.parameters()).device
    states = model.encode_text(ImpactInputs([], None, None, padded.to(device), mask.to(device)))
    assert states is not None
    return {"text_states": states, "token_mask": mask}
