"""One run of the demo: three node processes, driven and recorded from this one."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import rclpy
from lifecycle_msgs.msg import Transition
from rclpy.executors import SingleThreadedExecutor
from rclpy.signals import SignalHandlerOptions

from vla_simd_ros.control.supply import c2_margin, delay_steps
from vla_simd_ros.control.timeline import Mode
from vla_simd_ros.msg import HybridState
from vla_simd_ros.nodes.demo_plot import draw_frames, draw_timeline
from vla_simd_ros.nodes.demo_processes import ProcessGroup
from vla_simd_ros.nodes.demo_recorder import DemoRecorder
from vla_simd_ros.nodes.demo_recording import Recording
from vla_simd_ros.nodes.demo_report import Report, summarize
from vla_simd_ros.nodes.node_requests import NodeRequests, Pending
from vla_simd_ros.nodes.policy_report import ADVICE, SLOWEST_MARGINS, SUPPLY_STATUS
from vla_simd_ros.nodes.policy_settings import instruction_problem
from vla_simd_ros.sim.arm import JOINT_NAMES
from vla_simd_ros.sim.scene import CAMERAS
from vla_simd_ros.sim.typed_lines import TypedLines

SIM, POLICY, EXECUTOR = "robot_sim_node", "policy_node", "chunk_executor_node"
_HYBRID = "hybrid_scheduler_node"  # takes the policy node's place, and its name
PARAMETER_FILES = {
    SIM: "robot_sim.yaml",
    POLICY: "policy_node.yaml",
    EXECUTOR: "chunk_executor.yaml",
    _HYBRID: "hybrid_scheduler.yaml",
}
# Cameras start when the policy can see them, so that what was sent and what was received can be compared;
# states as frequent as commands show how the age of the observation goes on. Simulator and policy leave no
# core to the executor.
_DEMO_PARAMETERS = {
    SIM: {"stopped_cameras": "[" + ", ".join(CAMERAS) + "]"},
    EXECUTOR: {"state_rate": "30.0", "realtime_priority": "50"},
}
_TRIAL_CHUNKS = 2  # the first one waits for the instruction too
_PROGRESS_S = 4.0
_START_TIMEOUT_S = 120.0
_CONFIGURE_TIMEOUT_S = 300.0
_DIAGNOSTICS_S = 2.5
"""Longer than two periods of the nodes' diagnostics: their last counts have arrived by then."""


class DemoError(RuntimeError):
    """The demo could not run; the message says what failed and shows the log of the node concerned."""


@dataclass(frozen=True)
class DemoSettings:
    """What to run.

    checkpoint, note: the policy's folder, and what to tell about the policy
    duration: seconds
    instructions: the first one, and perhaps another that replaces it half-way
    parameters: by node name, values that replace those of the parameter files (ROS command line syntax)
    out: folder of the results
    config: folder of the parameter files
    study: which series of runs to make instead of one, with its values; empty: none
    hybrid: whether the policy is shared between two executors
    typed: whether lines of standard input are instructions too
    """

    checkpoint: str
    note: str
    duration: float
    instructions: list[str]
    parameters: dict[str, dict[str, str]]
    out: Path
    config: Path
    study: dict[str, Any] = field(default_factory=dict)
    hybrid: bool = False
    typed: bool = False

    @classmethod
    def from_json(cls, text: str) -> DemoSettings:
        """From what `vla_simd demo` hands over."""
        values = json.loads(text)
        return cls(**{**values, "out": Path(values["out"]), "config": Path(values["config"])})


class DemoRun:
    """Starts the nodes, lets them work for the wanted time, and reports. Progress goes to `say`."""

    def __init__(self, settings: DemoSettings, group: ProcessGroup, say: Callable[[str], None]) -> None:
        """Joins the ROS domain named in the environment; `group` starts its processes there too."""
        self._settings = settings
        self._group = group
        self._say = say
        self._recording = Recording(list(JOINT_NAMES))
        self._typed: TypedLines | None = None
        self._was_told = False
        self._goals_told: set[tuple[int, str]] = set()
        self._supply_told = ""
        rclpy.init(args=[], signal_handler_options=SignalHandlerOptions.NO)
        self._node = DemoRecorder(self._recording, list(CAMERAS))
        self._requests = NodeRequests(self._node, time.monotonic)
        self._executor = SingleThreadedExecutor()
        self._executor.add_node(self._node)

    def execute(self) -> Report:
        """The whole run. Raises ProcessError when a node dies, DemoError when one does not do its part."""
        self._start_nodes()
        self._bring_up()
        self._record()
        self._wind_down()
        if self._node.hybrid is not None:
            self._say(describe_hybrid(self._node.hybrid))
        return summarize(self._recording, list(CAMERAS))

    def close(self) -> None:
        """Leaves ROS."""
        self._executor.shutdown()
        self._node.destroy_node()
        rclpy.try_shutdown()

    # --- phases -----------------------------------------------------------------------------------

    def _start_nodes(self) -> None:
        self._say("starting robot_sim_node, policy_node and chunk_executor_node")
        for name in (SIM, POLICY, EXECUTOR):
            module = _HYBRID if name == POLICY and self._settings.hybrid else name
            command = [sys.executable, "-m", f"vla_simd_ros.nodes.{module}", "--ros-args"]
            command += ["-r", f"__node:={name}"]
            command += ["--params-file", str(self._settings.config / PARAMETER_FILES[module])]
            parameters = {**_DEMO_PARAMETERS.get(name, {}), **self._settings.parameters.get(name, {})}
            for parameter, value in parameters.items():
                command += ["-p", f"{parameter}:={value}"]
            self._group.start(name, command)
        self._wait(
            lambda: bool(self._recording.joint_states), _START_TIMEOUT_S, SIM, "the robot's joint states"
        )

    def _bring_up(self) -> None:
        """From started processes to an executing policy; cameras start when someone looks at them."""
        self._node.instruct(self._settings.instructions[0])
        self._say(f"loading the policy from {self._settings.checkpoint}")
        self._transition(POLICY, "configure", Transition.TRANSITION_CONFIGURE)
        self._stop_cameras([])
        self._wait(lambda: set(self._node.frames) == set(CAMERAS), _START_TIMEOUT_S, SIM, "camera pictures")
        self._node.ignore_cameras()
        self._transition(POLICY, "activate", Transition.TRANSITION_ACTIVATE)
        if "mode" not in self._settings.parameters.get(EXECUTOR, {}):
            self._choose_mode()
        self._transition(EXECUTOR, "configure", Transition.TRANSITION_CONFIGURE)
        self._transition(EXECUTOR, "activate", Transition.TRANSITION_ACTIVATE)

    def _choose_mode(self) -> None:
        """Time-aligned where this machine is fast enough for it, else lagged, which can execute any chunk."""
        chunks = self._recording.chunks
        self._wait(lambda: len(chunks) >= _TRIAL_CHUNKS, _START_TIMEOUT_S, POLICY, "the first chunks")
        last = chunks[-1]
        delay = delay_steps(last.arrival - last.stamp, round(last.step_period * 1e9))
        holds = c2_margin(last.window, delay) >= 0.0
        mode = Mode.TIME_ALIGNED if holds else Mode.LAGGED
        self._say(
            f"chunks of H = {last.window} steps come after d = {delay} steps: C2 (2 d <= H) "
            f"{'holds' if holds else 'does not hold'}, so execution is {mode.value}"
        )
        self._set_parameter(EXECUTOR, "mode", mode.value)

    def _record(self) -> None:
        recording, duration = self._recording, self._settings.duration
        recording.begin(self._node.now)
        self._say(f"running for {duration:g} s with the instruction '{self._settings.instructions[0]}'")
        if self._settings.typed:
            self._typed = TypedLines(sys.stdin.fileno())
            self._say("type another instruction and press return to change it")
        self._spin(duration / 2.0, self._progress)
        # Who typed one does not want it replaced by one that was planned before.
        planned = self._settings.instructions[1:] if not self._was_told else []
        for text in planned:
            self._say(f"new instruction: '{text}'")
            self._node.instruct(text)
        self._spin(duration / 2.0, self._progress)
        recording.end = self._node.now
        self._typed = None

    def _tell_goals(self) -> None:
        """Says which goals have been reached since the last call.

        Each once for an instruction: a cube that the jaws let go of may come to rest more than once.
        """
        recording = self._recording
        given = recording.instructions[-1][0] if recording.instructions else 0
        for time_reached, text in recording.goals:
            if time_reached > given and (given, text) not in self._goals_told:
                self._goals_told.add((given, text))
                seconds = (time_reached - given) * 1e-9
                self._say(f"goal reached {seconds:.1f} s after the instruction: '{text}'")

    def _tell_supply(self) -> None:
        """Says whether the policy keeps its controller supplied, and again where that has changed."""
        found = self._recording.diagnostics.get(f"{POLICY}: {SUPPLY_STATUS}", {})
        margins = [found[name] for name in SLOWEST_MARGINS if name in found]
        verdict = " ".join("fails" if margin.startswith("-") else "holds" for margin in margins)
        if verdict not in ("", self._supply_told):
            self._supply_told = verdict
            self._say(found[ADVICE] if "fails" not in verdict else found["message"])

    def _follow_typed(self) -> None:
        """Publishes what has been typed since the last call."""
        for line in self._typed.take() if self._typed else ():
            text = line.strip()
            if problem := typed_problem(text):
                self._say(f"typed line is no instruction: {problem}")
                continue
            self._was_told = True
            self._say(f"typed instruction: '{text}'")
            self._node.instruct(text)

    def _wind_down(self) -> None:
        """Stops the parts one after the other and collects their last counts."""
        self._say("stopping")
        self._transition(POLICY, "deactivate", Transition.TRANSITION_DEACTIVATE)
        self._transition(EXECUTOR, "deactivate", Transition.TRANSITION_DEACTIVATE)
        self._stop_cameras(list(CAMERAS))
        self._spin(_DIAGNOSTICS_S, self._progress)

    # --- means ------------------------------------------------------------------------------------

    def _spin(
        self, seconds: float, progress: Callable[[], str], until: Callable[[], bool] = lambda: False
    ) -> None:
        """Handles messages for a time, watching the processes and saying how it goes."""
        start = said = time.monotonic()
        while (now := time.monotonic()) < start + seconds and not until():
            self._turn()
            if now - said >= _PROGRESS_S:
                said = now
                self._say(progress())

    def _turn(self) -> None:
        self._executor.spin_once(timeout_sec=0.1)
        self._group.check()
        self._follow_typed()
        self._tell_goals()
        self._tell_supply()

    def _wait(self, condition: Callable[[], bool], timeout: float, node: str, what: str) -> None:
        start = said = time.monotonic()
        while not condition():
            self._turn()
            now = time.monotonic()
            if now - start > timeout:
                raise DemoError(self._with_log(node, f"{what}: nothing after {timeout:g} s"))
            if now - said >= _PROGRESS_S:
                said = now
                self._say(f"waiting for {what} ({now - start:.0f} s)")

    def _transition(self, node: str, verb: str, transition: int) -> None:
        request = self._requests.change_state(node, transition)
        if not self._answer(request, _CONFIGURE_TIMEOUT_S, node, f"{node} to {verb}"):
            raise DemoError(self._with_log(node, f"{node} could not {verb}"))

    def _stop_cameras(self, names: Sequence[str]) -> None:
        self._set_parameter(SIM, "stopped_cameras", list(names) or [""])

    def _set_parameter(self, node: str, name: str, value: Any) -> None:
        request = self._requests.set_parameter(node, name, value)
        result = self._answer(request, _START_TIMEOUT_S, node, f"{node} to set {name}")
        if not result.successful:
            raise DemoError(f"{node} refused {name}: {result.reason}")

    def _answer(self, request: Pending, timeout: float, node: str, what: str) -> Any:
        answers: list[Any] = []

        def answered() -> bool:
            answer = request.poll()
            answers.extend([] if answer is None else [answer])
            return bool(answers)

        self._wait(answered, timeout, node, what)
        return answers[0]

    def _with_log(self, node: str, problem: str) -> str:
        return f"{problem}; the end of {self._group.log_path(node)}:\n{self._group.last_lines(node)}"

    def _progress(self) -> str:
        recording = self._recording
        text = f"{recording.seconds(self._node.now):5.1f} s: {len(recording.timings)} queries"
        if recording.timings:
            text += f", the last one {recording.timings[-1].milliseconds['total_ms']:.0f} ms"
        if recording.executor:
            last = recording.executor[-1]
            text += f"; {last.state.lower()}, {last.values['buffered_steps']:.0f} steps buffered"
            text += f", {last.values['starved_steps']:.0f} starved"
        return text

    def write(self, report: Report) -> list[Path]:
        """The pictures and the data; their paths."""
        out = self._settings.out
        paths = [out / name for name in ("timeline.png", "frames.png", "results.json", "recording.json")]
        draw_timeline(self._recording, f"vla_simd demo: {self._settings.note}", paths[0])
        draw_frames(self._node.frames, paths[1])
        settings = asdict(self._settings)
        described = {
            "settings": {
                key: str(item) if isinstance(item, Path) else item for key, item in settings.items()
            },
            "report": asdict(report),
        }
        paths[2].write_text(json.dumps(plain(described), indent=2) + "\n", encoding="utf-8")
        paths[3].write_text(json.dumps(plain(asdict(self._recording))) + "\n", encoding="utf-8")
        return paths


def describe_hybrid(state: HybridState) -> str:
    """The last state of the hybrid scheduler in words."""
    drops = zip(state.drop_reasons, state.drop_counts, strict=True)
    dropped = ", ".join(f"{number} {reason}" for reason, number in drops if number)
    return (
        f"cut after {state.blocks} blocks ({state.after}), moved {state.moves} times; a result every "
        f"{state.interval_ms:.1f} ms, parts of {state.prefix_ms:.1f} and {state.suffix_ms:.1f} ms, "
        f"{state.latency_ms:.1f} ms each; {state.frames_finished} frames of {state.frames_submitted}, "
        f"dropped: {dropped or 'none'}; {state.restarts} restarts"
    )


def typed_problem(text: str) -> str | None:
    """Why what was typed cannot be followed, or None."""
    if not text.isprintable():
        return f"{text!r} has characters that cannot be printed, expected plain text"
    return instruction_problem(text)


def plain(value: Any) -> Any:
    """`value` for JSON, which has no NaN: None stands for a number that is not known."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and value != value else value
