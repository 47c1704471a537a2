"""Random U-Nets over time, with the names of LeRobot's Diffusion Policy."""

from __future__ import annotations

from typing import Any

from vla_simd_ros.checkpoints.synthesis.weights import WeightMaker

# Scales lie about 1 and shifts about 0, as far as conditions move them.
_MODULATION_DEVIATION = 0.3
# Of the residual sum of a block: what its own two convolutions add to what it was given.
_RESIDUAL_SCALE = 0.5


def add_unet(make: WeightMaker, prefix: str, config: dict[str, Any], actions: int, observed: int) -> None:
    """Everything under ``prefix``, for ``actions`` wide rows and ``observed`` values to be conditioned on."""
    step = config["diffusion_step_embed_dim"]
    make.linear(f"{prefix}.diffusion_step_encoder.1", step, 4 * step)
    make.linear(f"{prefix}.diffusion_step_encoder.3", 4 * step, step)
    unet = _UNetMaker(make, config, step + observed)
    widths = config["down_dims"]
    for level, (inputs, width) in enumerate(zip([actions, *widths], widths, strict=False)):
        name = f"{prefix}.down_modules.{level}"
        unet.block(f"{name}.0", inputs, width)
        unet.block(f"{name}.1", width, width)
        if level < len(widths) - 1:
            make.line_convolution(f"{name}.2", width, width, 3)
    for index in range(2):
        unet.block(f"{prefix}.mid_modules.{index}", widths[-1], widths[-1])
    for index, width in enumerate(reversed(widths[:-1])):
        name = f"{prefix}.up_modules.{index}"
        unet.block(f"{name}.0", 2 * widths[-1 - index], width)
        unet.block(f"{name}.1", width, width)
        # Of the four taps, every row reads two.
        make.uniform(f"{name}.2.weight", (width, width, 4), (3 / (2 * width)) ** 0.5)
        make.uniform(f"{name}.2.bias", (width,), 0.02)
    unet.convolution(f"{prefix}.final_conv.0", widths[0], widths[0])
    make.line_convolution(f"{prefix}.final_conv.1", widths[0], actions, 1)


class _UNetMaker:
    """Makes the blocks of one U-Net."""

    def __init__(self, make: WeightMaker, config: dict[str, Any], conditions: int) -> None:
        self._make = make
        self._kernel = config["kernel_size"]
        self._scales = config["use_film_scale_modulation"]
        self._conditions = conditions

    def block(self, name: str, inputs: int, outputs: int) -> None:
        self.convolution(f"{name}.conv1", inputs, outputs)
        self._modulation(f"{name}.cond_encoder.1", outputs)
        self.convolution(f"{name}.conv2", outputs, outputs, _RESIDUAL_SCALE)
        if inputs != outputs:
            self._make.line_convolution(f"{name}.residual_conv", inputs, outputs, 1)

    def convolution(self, name: str, inputs: int, outputs: int, scale: float = 1.0) -> None:
        """A convolution and its group norm."""
        self._make.line_convolution(f"{name}.block.0", inputs, outputs, self._kernel)
        self._make.group_norm(f"{name}.block.1", outputs, scale)

    def _modulation(self, name: str, width: int) -> None:
        outputs = 2 * width if self._scales else width
        deviation = _MODULATION_DEVIATION * self._conditions**-0.5
        self._make.spread(f"{name}.weight", (outputs, self._conditions), deviation)
        bias = self._make.draw(f"{name}.bias", (outputs,), -0.1, 0.1)
        if self._scales:
            bias[:width] += 1
        self._make.tensors[f"{name}.bias"] = bias
