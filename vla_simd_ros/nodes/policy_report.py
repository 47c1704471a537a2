"""The policy node's diagnostics in words."""

from __future__ import annotations

from vla_simd_ros.control.supply_watch import Verdict
from vla_simd_ros.nodes.diagnostics import Level, Status
from vla_simd_ros.nodes.observations import Observations
from vla_simd_ros.nodes.policy_runner import PolicyRunner
from vla_simd_ros.nodes.policy_settings import PolicySettings

SUPPLY_STATUS = "action supply of the policy"
SLOWEST_MARGINS = ("C1 margin, slowest", "C2 margin, slowest")
ADVICE = "advice"
FEWER_STEPS = "could take fewer solver steps"
"""Name and values of what a policy node reports of its supply of actions."""


class Refusals:
    """Counts of refused messages, of which each report tells those that are new; all of them while there has
    been nothing else."""

    def __init__(self) -> None:
        self._told: dict[str, int] = {}

    def new(self, of: str, count: int, last_usable_ns: int | None) -> int:
        """How many of ``count`` are to be told; from now on they have been."""
        told, self._told[of] = self._told.get(of, 0), count
        return count if last_usable_ns is None else count - told


def observation_status(
    observations: Observations,
    settings: PolicySettings,
    refusals: Refusals,
    uses_joints: bool,
    now_ns: int,
    since_ns: int,
) -> Status:
    """Cameras and joint states: silent ones, refused messages, frames lost on the way.

    Args:
        observations: what has been received.
        settings: time limits.
        refusals: what the reports before this one have told.
        uses_joints: whether the policy takes a joint state.
        now_ns: the present time.
        since_ns: when the node started to listen.
    """
    status = Status("observations")
    for name, health in observations.health.items():
        silent_ns = health.silent_ns(now_ns, since_ns)
        if silent_ns > settings.camera_timeout_ns:
            status.add(Level.ERROR, _silence(f"camera '{name}'", "frame", silent_ns, health.last_fault))
        loss = health.loss(name)
        if loss is not None:
            status.add(Level.WARN, loss)
        new = refusals.new(name, health.unusable, health.last_ns)
        if new and silent_ns <= settings.camera_timeout_ns:
            refused = f"camera '{name}': {new} frames refused since the last report"
            status.add(Level.WARN, f"{refused}, the last one: {health.last_fault}")
        status.values[f"{name}: frames received"] = health.received
        status.values[f"{name}: frames refused"] = health.unusable
        status.values[f"{name}: delivered share"] = health.delivered_share()
    if uses_joints:
        new = refusals.new(settings.state_topic, observations.joint_faults, observations.joints_ns)
        _add_joints(status, observations, settings, new, now_ns, since_ns)
    status.values["sets of frames"] = observations.sets
    if not observations.sets and status.level < Level.ERROR:
        status.add(Level.WARN, "no set of frames whose capture times match within sync_slop yet")
    return status


def _add_joints(
    status: Status,
    observations: Observations,
    settings: PolicySettings,
    new_faults: int,
    now_ns: int,
    since_ns: int,
) -> None:
    silent_ns = now_ns - (observations.joints_ns if observations.joints_ns is not None else since_ns)
    if silent_ns > settings.joint_timeout_ns:
        status.add(
            Level.ERROR, _silence(settings.state_topic, "message", silent_ns, observations.joint_fault)
        )
    elif new_faults:
        refused = f"{new_faults} messages of {settings.state_topic} refused since the last report"
        status.add(Level.WARN, f"{refused}, the last one: {observations.joint_fault}")
    status.values["joint states refused"] = observations.joint_faults


def policy_status(runner: PolicyRunner, instruction: str | None, missing_instruction: bool) -> Status:
    """The policy itself: failures, a missing or truncated instruction, skipped observations."""
    status = Status("policy")
    if missing_instruction:
        status.add(Level.ERROR, "no instruction: publish one on the topic instruction")
    if runner.problem:
        status.add(Level.ERROR, runner.problem)
    if runner.unavailable:
        status.add(Level.WARN, runner.unavailable)
    if runner.guessed:
        status.add(
            Level.WARN, "the last chunk is a guess: its query had not converged (accept_unconverged is true)"
        )
    if runner.truncated:
        status.add(Level.WARN, "the instruction is longer than the policy takes: the rest is left out")
    status.values.update(
        {
            "queries": runner.queries,
            "observations skipped": runner.skipped,
            "queries not converged": runner.unconverged,
            "instruction": instruction,
        }
    )
    return status


def supply_forecast_status(verdict: Verdict | None) -> Status:
    """Whether the policy is fast enough for its controller."""
    status = Status(SUPPLY_STATUS)
    if verdict is None:
        return status
    c1, c2 = verdict.holds
    if not c1 or not c2:
        status.add(Level.WARN, str(verdict))
    status.values.update(
        {
            "chunks judged": verdict.samples,
            "query, median ms": verdict.query_s * 1e3,
            "delay d, median": verdict.median.delay,
            "C1 margin, median": verdict.median.c1,
            "C2 margin, median": verdict.median.c2,
            **dict(zip(SLOWEST_MARGINS, (verdict.longest.c1, verdict.longest.c2), strict=True)),
            FEWER_STEPS: verdict.fewer_steps,
            ADVICE: verdict.advice,
        }
    )
    return status


def _silence(what: str, unit: str, silent_ns: int, last_fault: str) -> str:
    text = f"{what}: no usable {unit} for {silent_ns * 1e-9:.1f} s"
    return f"{text}; the last one refused: {last_fault}" if last_fault else text
