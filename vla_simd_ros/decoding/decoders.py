"""The decoders by name."""

from __future__ import annotations

import time
from dataclasses import dataclass, fields

from vla_simd_ros.decoding.auto import AutoDecoder
from vla_simd_ros.decoding.base import Clock, Decoder, DecodingError
from vla_simd_ros.decoding.parallel import ParallelDecoder

DECODERS = ("autoregressive", "jacobi", "early_exit", "auto")

DEFAULT_BLOCK = 16
DEFAULT_SIGMA = 0.5


@dataclass(frozen=True)
class DecoderOptions:
    """What :func:`make_decoder` takes, for a decoder that is made later.

    ``block`` is 0 for all tokens that are decoded at most.
    """

    decoder: str = "auto"
    sigma: float = DEFAULT_SIGMA
    max_passes: int = 0
    block: int = 0
    initialization: str = "random"
    decoder_seed: int = 0

    def __str__(self) -> str:
        named = [self.decoder, *([f"sigma {self.sigma:g}"] if self.decoder == "early_exit" else [])]
        limits = (("block", self.block), ("max_passes", self.max_passes))
        return ", ".join([*named, *(f"{name} {value}" for name, value in limits if value)])

    @property
    def changed(self) -> dict[str, object]:
        """Those that are not what they are where nothing is said, by name."""
        given = {field.name: (getattr(self, field.name), field.default) for field in fields(self)}
        return {name: value for name, (value, default) in given.items() if value != default}

    def make(self, count: int, clock: Clock = time.monotonic) -> Decoder:
        """The decoder, for up to ``count`` tokens. Raises DecodingError for what does not exist."""
        return make_decoder(
            self.decoder,
            block=self.block or count,
            sigma=self.sigma,
            max_passes=self.max_passes,
            initialization=self.initialization,
            seed=self.decoder_seed,
            clock=clock,
        )


DEFAULT_OPTIONS = DecoderOptions()


def make_decoder(
    name: str,
    *,
    block: int = DEFAULT_BLOCK,
    sigma: float = DEFAULT_SIGMA,
    max_passes: int = 0,
    initialization: str = "random",
    seed: int = 0,
    clock: Clock = time.monotonic,
) -> Decoder:
    """The decoder ``name``: "autoregressive" (one token after the other), "jacobi" (blocks of ``block``
    tokens, each until its fixed point), or "early_exit" (until every token of a block has a probability of
    ``sigma``, at the latest until the fixed point), or "auto" (autoregressive, or jacobi with the block of up
    to ``block`` tokens that turns out to be fastest).

    What a decoder has no use for is ignored, so that they can be exchanged. Raises :class:`DecodingError` for
    a name or a value that does not exist.
    """
    if name not in DECODERS:
        raise DecodingError(f"decoder '{name}' is unknown, expected one of {', '.join(DECODERS)}")
    if name == "early_exit" and sigma == 0:
        raise DecodingError("sigma is 0, expected a probability above 0 for decoder 'early_exit'")
    if name == "auto":

        def make(size: int) -> Decoder:
            return make_decoder(
                "autoregressive" if size == 1 else "jacobi",
                block=size,
                max_passes=max_passes,
                initialization=initialization,
                seed=seed,
                clock=clock,
            )

        make(block)  # refuses values that do not exist
        return AutoDecoder(block, make, clock=clock)
    return ParallelDecoder(
        name=name,
        block=1 if name == "autoregressive" else block,
        sigma=sigma if name == "early_exit" else 0.0,
        max_passes=max_passes,
        initialization=initialization,
        seed=seed,
        clock=clock,
    )
