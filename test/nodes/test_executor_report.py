"""The chunk executor's state as a message."""

from __future__ import annotations

import numpy as np

from vla_simd_ros.control.chunk import LONGEST_STEP_S, RawChunk
from vla_simd_ros.control.control_loop import ControlLoop
from vla_simd_ros.nodes.executor_report import UINT32_MAX, Executed, state_message
from vla_simd_ros.nodes.executor_settings import PARAMETERS, settings_from

NOW = 10**12


def test_more_buffered_steps_than_the_message_can_say_are_cut() -> None:
    values = {param.name: param.default for param in PARAMETERS}
    limits = {"position_lower": [-1.0], "position_upper": [1.0]}
    settings = settings_from({**values, **limits, "joints": ["pan"], "control_rate": 1000.0})
    loop = ControlLoop(settings.loop)
    loop.start_epoch(1)
    rows = int(UINT32_MAX * 1e-3 / LONGEST_STEP_S) + 2
    loop.chunk(RawChunk(NOW, 1, 1, ["pan"], LONGEST_STEP_S, rows, rows, np.zeros(rows)), NOW)
    assert loop.timeline.buffered_steps() > UINT32_MAX
    assert state_message(loop, settings, None, Executed(), True).buffered_steps == UINT32_MAX
