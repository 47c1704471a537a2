"""Two small convolutions that can be computed in every form, the second on what the first gives."""

from __future__ import annotations

from vla_simd_ros.executors.convolution_forms import ConvolutionShape

SHAPE = ConvolutionShape(height=9, width=14, channels=20, filters=24, kernel=3, stride=1, padding=1)
OTHER = ConvolutionShape(height=9, width=14, channels=24, filters=24, kernel=3, stride=1, padding=0)
