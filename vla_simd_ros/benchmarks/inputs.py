"""What a query program reads of an observation."""

from __future__ import annotations

from vla_simd_ros.fidelity.observations import RawObservation
from vla_simd_ros.graph.ir import Array


def query_inputs(observation: RawObservation) -> dict[str, Array]:
    """Runtime inputs by name: frames ``[H, W, 3]`` as they are, vectors as one row."""
    values: dict[str, Array] = {f"image.{name}": image for name, image in observation.images.items()}
    if observation.state is not None:
        values["state"] = observation.state[None]
    if observation.env_state is not None:
        values["env_state"] = observation.env_state[None]
    return values
