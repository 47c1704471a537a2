"""The simulated SO-101 as a ROS node: joint states and two cameras out, joint trajectories in.

Run it with `ros2 run vla_simd_ros robot_sim_node --ros-args --params-file robot_sim.yaml`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

from rcl_interfaces.msg import ParameterDescriptor, SetParametersResult
from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.time import Time
from rosgraph_msgs.msg import Clock as ClockMessage
from sensor_msgs.msg import Image, JointState
from std_srvs.srv import Trigger
from trajectory_msgs.msg import JointTrajectory

from vla_simd_ros.nodes import qos
from vla_simd_ros.nodes.diagnostics import DiagnosticsPublisher, Level, Status
from vla_simd_ros.nodes.process import run_node
from vla_simd_ros.nodes.robot_sim_cameras import CameraWorker, Picture
from vla_simd_ros.nodes.robot_sim_images import image_message
from vla_simd_ros.nodes.robot_sim_tasks import TaskReport
from vla_simd_ros.sim.arm import JOINT_NAMES
from vla_simd_ros.sim.mjcf import TIMESTEP
from vla_simd_ros.sim.pacing import MAX_LAG, Pacer
from vla_simd_ros.sim.physics import SimulationError, Snapshot
from vla_simd_ros.sim.rendering import RENDERERS
from vla_simd_ros.sim.scene import CAMERAS
from vla_simd_ros.sim.schedule import SensorSchedule
from vla_simd_ros.sim.tasks import TaskScene
from vla_simd_ros.sim.trajectory import CommandError, CommandFollower, parse_trajectory

PARAMETERS: dict[str, tuple[Any, str]] = {
    "image_width": (640, "Width of the camera pictures, pixels."),
    "image_height": (480, "Height of the camera pictures, pixels."),
    "camera_rate": (30.0, "Pictures per second of each camera."),
    "joint_state_rate": (100.0, "Joint states per second."),
    "renderer": ("auto", f"How pictures are drawn: one of {', '.join(RENDERERS)}."),
    "command_timeout": (0.5, "Seconds after which an unrenewed trajectory is dropped; 0: never."),
    "publish_clock": (False, "Publish simulated time on /clock and stamp with it."),
    "real_time_factor": (1.0, "Simulated seconds per second; other than 1 only with publish_clock."),
    "stopped_cameras": ([""], "Cameras that deliver nothing; can be set while running."),
    "scene_seed": (0, "Where the cubes and the arm start; from ~/reset_scene on when set while running."),
}
_CHANGEABLE = ("stopped_cameras", "scene_seed")


class RobotSimNode(Node):
    """Runs the simulation in step with a clock. Raises SimulationError or ValueError for bad parameters."""

    def __init__(self, **node_options: Any) -> None:
        super().__init__("robot_sim_node", **node_options)
        values = self._declare_parameters()
        self._publish_clock = bool(values["publish_clock"])
        if values["real_time_factor"] != 1.0 and not self._publish_clock:
            factor = values["real_time_factor"]
            raise ValueError(f"real_time_factor: got {factor}, expected 1 without publish_clock")
        self._timeout = float(values["command_timeout"])
        self._scene = TaskScene(
            width=values["image_width"],
            height=values["image_height"],
            renderer=values["renderer"],
            warn=self.get_logger().warning,
        )
        self._robot = self._scene.robot
        self._seed, self._resets = int(values["scene_seed"]), 0
        self._scene.reset(self._seed)
        rates = {"joints": values["joint_state_rate"], "frames": values["camera_rate"]}
        self._schedule = SensorSchedule(rates)
        self._pacer = Pacer(1.0 / values["camera_rate"], values["real_time_factor"])
        self._told = 0, 0.0  # stalls and seconds given up, of the last diagnostics
        self._follower = CommandFollower(self._robot.command, self._timeout)
        self._commands = {"accepted": 0, "rejected": 0, "timed out": 0}
        self._create_interfaces()
        self._cameras = CameraWorker(self._robot, self._publish_frame)
        self._set_stopped_cameras(values["stopped_cameras"])
        self.add_on_set_parameters_callback(self._on_parameters)
        self._cameras.start()
        # Read the clock once now, not before the renderer was ready, which is no stall: a stamped command may
        # arrive before the first tick.
        self._pacer.target(self._now(), self._robot.time)
        self.get_logger().info(
            f"simulating an SO-101; cameras {', '.join(CAMERAS)} at {values['image_width']}x"
            f"{values['image_height']} by {self._robot.renderer_name}"
        )
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        period_s = 1.0 / values["joint_state_rate"]
        self._longest_wait_ns = round(period_s * 1e9)
        self._timer = self.create_timer(period_s, self._on_timer, clock=steady)
        self.create_timer(1.0, self._publish_diagnostics, clock=steady)

    def _declare_parameters(self) -> dict[str, Any]:
        for name, (default, description) in PARAMETERS.items():
            descriptor = ParameterDescriptor(description=description, read_only=name not in _CHANGEABLE)
            self.declare_parameter(name, default, descriptor)
        values = {name: self.get_parameter(name).value for name in PARAMETERS}
        if not values["command_timeout"] >= 0.0:
            raise ValueError(f"command_timeout: got {values['command_timeout']} s, expected zero or more")
        _check_seed(values["scene_seed"])
        return values

    def _create_interfaces(self) -> None:
        self._joint_states = self.create_publisher(JointState, "joint_states", qos.STATE)
        self._images = {
            name: self.create_publisher(Image, f"camera/{name}/image_raw", qos.CAMERA) for name in CAMERAS
        }
        self._diagnostics = DiagnosticsPublisher(self)
        if self._publish_clock:
            self._clock_out = self.create_publisher(ClockMessage, "/clock", qos.COMMAND)
        self.create_subscription(JointTrajectory, "joint_trajectory", self._on_command, qos.COMMAND)
        self._tasks = TaskReport(self, self._scene)
        self.create_service(Trigger, "~/reset_scene", self._on_reset_scene)

    # --- time -------------------------------------------------------------------------------------

    def _now(self) -> int:
        """Nanoseconds of the clock that paces the simulation."""
        return time.monotonic_ns() if self._publish_clock else int(self.get_clock().now().nanoseconds)

    def _stamp(self, simulated: float) -> Time:
        """The message stamp of a simulated instant, on the clock that the other nodes use."""
        nanoseconds = round(simulated * 1e9) if self._publish_clock else self._pacer.stamp(simulated)
        return Time(nanoseconds=nanoseconds)

    def _on_timer(self) -> None:
        self._tick()
        # At a fixed period a picture would wait for the next call, for a time that repeats with the beat of
        # both rates: who looks at every n-th picture would always find the same one.
        due = self._schedule.next_step
        assert due is not None  # both rates are positive
        wait_ns = self._pacer.stamp(due * TIMESTEP) - self._now()
        self._timer.timer_period_ns = min(max(1, wait_ns), self._longest_wait_ns)
        self._timer.reset()

    def _tick(self) -> None:
        if self._cameras.error is not None:
            raise SimulationError(f"the cameras stopped: {self._cameras.error}") from self._cameras.error
        before_s = self._pacer.given_up_s
        target = self._pacer.target(self._now(), self._robot.time)
        given_up_s = self._pacer.given_up_s - before_s
        if given_up_s and not self._publish_clock:  # who takes the time from this node's clock sees no gap
            self.get_logger().warning(_stall(given_up_s), throttle_duration_sec=5.0)
        for step, events in self._schedule.until(int(target / TIMESTEP + 1e-6)):
            self._advance_to(step * TIMESTEP)
            snapshot = self._robot.snapshot()
            if "joints" in events:
                self._publish_joints(snapshot)
            if "frames" in events:
                self._cameras.submit(snapshot, self._stamp(snapshot.time))
                self._report_tasks()

    def _advance_to(self, instant: float) -> None:
        if self._follower.timed_out(instant):
            self._commands["timed out"] += 1
            self.get_logger().warning(
                f"no command for {self._timeout} s: the arm holds", throttle_duration_sec=5.0
            )
        self._robot.set_command(self._follower.sample(instant))
        self._robot.step(max(0.0, instant - self._robot.time))

    def _on_reset_scene(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        """Cubes and arm at rest where the seed puts them; earlier commands are dropped, and time goes on."""
        self._seed, self._resets = int(self.get_parameter("scene_seed").value), self._resets + 1
        self._scene.arrange(self._seed)
        self._follower = CommandFollower(self._robot.command, self._timeout)
        self._report_tasks()
        response.success = True
        response.message = f"scene of seed {self._seed}, reset {self._resets}"
        return response

    def _report_tasks(self) -> None:
        self._tasks.update(self._stamp(self._robot.time), self._seed, self._resets)

    # --- out --------------------------------------------------------------------------------------

    def _publish_joints(self, snapshot: Snapshot) -> None:
        stamp = self._stamp(snapshot.time).to_msg()
        if self._publish_clock:
            self._clock_out.publish(ClockMessage(clock=stamp))
        message = JointState(name=list(JOINT_NAMES))
        message.header.stamp = stamp
        message.position = snapshot.positions.tolist()
        message.velocity = snapshot.velocities.tolist()
        self._joint_states.publish(message)

    def _publish_frame(self, camera: str, picture: Picture, stamp: Time) -> None:
        """Called by the camera thread."""
        self._images[camera].publish(image_message(picture, stamp.to_msg(), f"{camera}_camera"))

    def _publish_diagnostics(self) -> None:
        status = Status("simulation")
        status.values.update({f"{name}: frames sent": count for name, count in self._cameras.sent.items()})
        status.values["frame times skipped"] = self._cameras.skipped
        status.values.update({f"commands {name}": count for name, count in self._commands.items()})
        status.values["stalls"] = self._pacer.stalls
        status.values["seconds given up"] = f"{self._pacer.given_up_s:.3f}"
        told, self._told = self._told, (self._pacer.stalls, self._pacer.given_up_s)
        if self._told[0] > told[0] and not self._publish_clock:
            status.add(Level.WARN, _stall(self._told[1] - told[1]))
        if self._cameras.stopped:
            status.add(Level.WARN, f"stopped cameras: {', '.join(sorted(self._cameras.stopped))}")
        self._diagnostics.publish(status)

    # --- in ---------------------------------------------------------------------------------------

    def _on_command(self, message: JointTrajectory) -> None:
        try:
            self._accept(message)
        except CommandError as error:
            self._commands["rejected"] += 1
            self._follower.hold()
            self.get_logger().error(f"command rejected, the arm holds: {error}", throttle_duration_sec=1.0)

    def _accept(self, message: JointTrajectory) -> None:
        rows = [list(point.positions) for point in message.points]
        starts = [point.time_from_start for point in message.points]
        times = [start.sec + start.nanosec * 1e-9 for start in starts]
        trajectory = parse_trajectory(message.joint_names, rows, times)
        now = self._robot.time
        self._follower.accept(trajectory, now, self._start_time(message, now))
        self._commands["accepted"] += 1

    def _start_time(self, message: JointTrajectory, now: float) -> float:
        """In simulated seconds; a stamp of zero means at once. Raises CommandError for one far from now."""
        stamp = Time.from_msg(message.header.stamp).nanoseconds
        if stamp == 0:
            return now
        start = stamp * 1e-9 if self._publish_clock else self._pacer.simulated(stamp)
        if 0.0 < self._timeout < abs(start - now):
            raise CommandError(
                f"stamp: starts {start - now:+.3f} s from now, expected at most {self._timeout} s away "
                "(or a stamp of zero: at once)"
            )
        return start

    def _on_parameters(self, parameters: Sequence[Parameter]) -> SetParametersResult:
        for parameter in parameters:
            try:
                if parameter.name == "stopped_cameras":
                    self._set_stopped_cameras(parameter.value)
                elif parameter.name == "scene_seed":
                    _check_seed(parameter.value)
            except ValueError as error:
                return SetParametersResult(successful=False, reason=str(error))
        return SetParametersResult(successful=True)

    def _set_stopped_cameras(self, names: Sequence[str]) -> None:
        wanted = {name for name in names if name}
        unknown = sorted(wanted - set(CAMERAS))
        if unknown:
            expected = ", ".join(CAMERAS)
            raise ValueError(f"stopped_cameras: got {', '.join(unknown)}, expected some of {expected}")
        self._cameras.stopped = frozenset(wanted)

    def stop(self) -> bool:
        """Ends the camera thread; whether it has ended."""
        return self._cameras.close()


def _stall(given_up_s: float) -> str:
    if given_up_s < 0.0:
        return f"the clock went back by {-given_up_s:.3f} s: the simulation goes on from there"
    return (
        f"the simulation was more than {MAX_LAG} s behind its clock and gave {given_up_s:.3f} s up: the arm "
        "stood still meanwhile, and nothing was sensed"
    )


def _check_seed(seed: int) -> None:
    if seed < 0:
        raise ValueError(f"scene_seed: got {seed}, expected zero or more")


def main(args: Sequence[str] | None = None) -> int:
    """Runs the node until it is interrupted; 1 when it could not start or the cameras failed."""
    try:
        return run_node(RobotSimNode, args)
    except (SimulationError, ValueError) as error:
        print(f"robot_sim_node: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
