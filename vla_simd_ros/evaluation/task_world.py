"""The simulated SO-101 and its tasks as a world to evaluate in, and the scripted expert as a pilot there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vla_simd_ros.control import so101
from vla_simd_ros.control.control_loop import ActionKind
from vla_simd_ros.control.limits import Limiter
from vla_simd_ros.evaluation.pilot import Counts, PilotFailed
from vla_simd_ros.evaluation.world import Actions, Episode, Picture, Vector
from vla_simd_ros.observation import Observation
from vla_simd_ros.sim.expert import Expert
from vla_simd_ros.sim.scene import CAMERAS, CUBES
from vla_simd_ros.sim.tasks import CONTROL_RATE, INSTRUCTIONS, TaskScene

_PERIOD_NS = round(1e9 / CONTROL_RATE)
LOOKED_AT_FROM = "front"
"""The camera for onlookers."""


class TaskWorld:
    """Cubes to be put on pads. Raises SimulationError where the simulation cannot be had.

    Args:
        width, height: of the pictures, pixels.
        cameras: those that are looked through, of `CAMERAS`.
        renderer: what draws the pictures.
    """

    def __init__(
        self, width: int, height: int, cameras: Sequence[str] = tuple(CAMERAS), renderer: str = "auto"
    ) -> None:
        self.scene = TaskScene(width=width, height=height, renderer=renderer)
        self._cameras = tuple(cameras)

    @property
    def instructions(self) -> Sequence[str]:
        """Every cube to every pad."""
        return INSTRUCTIONS

    @property
    def period_ns(self) -> int:
        """That of the demonstrations."""
        return _PERIOD_NS

    @property
    def actions(self) -> Actions:
        """Joint targets within the executor's default limits."""
        return Actions(tuple(so101.JOINTS), ActionKind.POSITION, so101.joint_limits())

    def begin(self, episode: Episode) -> None:
        """The seed alone decides: the same cubes and pads serve every instruction."""
        self.scene.reset(episode.seed)

    def observe(self) -> Observation:
        """All cameras and the joints."""
        robot = self.scene.robot
        images = {name: robot.render(name).image for name in self._cameras}
        return Observation(images, robot.joint_positions)

    @property
    def positions(self) -> Vector:
        """Of the joints, radians."""
        return self.scene.robot.joint_positions

    def act(self, command: Vector | None) -> None:
        """New targets for the servos, or the old ones."""
        if command is not None:
            self.scene.robot.set_command(command)
        self.scene.robot.step(1.0 / CONTROL_RATE)

    def achieved(self) -> frozenset[str]:
        """Fulfilled goals."""
        return self.scene.achieved()

    def state(self) -> Mapping[str, list[float]]:
        """Joint angles, and the centre of each cube in metres."""
        snapshot = self.scene.robot.snapshot()
        cubes = {cube.name: pose[:3].tolist() for cube, pose in zip(CUBES, snapshot.cubes, strict=True)}
        return {"joints": snapshot.positions.tolist(), **cubes}

    def picture(self) -> Picture:
        """The front camera's."""
        return self.scene.robot.render(LOOKED_AT_FROM).image

    def close(self) -> None:
        """Free the renderer."""
        self.scene.robot.close()


class ExpertPilot:
    """The scripted expert, within the executor's limits: what an evaluation finds of a perfect policy."""

    def begin(self, world: TaskWorld, episode: Episode) -> None:
        """A new expert for the episode's instruction."""
        self._expert = Expert(world.scene, episode.instruction)
        self._limiter = Limiter(world.actions.limits, world.period_ns * 1e-9)
        self._limiter.start(world.positions)

    def command(self, world: TaskWorld) -> Vector | None:
        """What the expert would do, as far as the limits allow it. Raises PilotFailed if it gives up."""
        wanted = self._expert.command()
        if self._expert.given_up:
            raise PilotFailed(self._expert.given_up)
        return self._limiter.step(wanted).command

    def counts(self) -> Counts:
        """It asks no policy."""
        return Counts()
