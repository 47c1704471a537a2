"""A recording against what the library computes from it now: chunks, and the rows executed from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from vla_simd_ros.control.control_loop import LoopConfig
from vla_simd_ros.nodes.policy_settings import PolicySettings
from vla_simd_ros.recording.bag import Bag, BagError
from vla_simd_ros.recording.replay_control import CommandComparison, replay_commands
from vla_simd_ros.recording.replay_policy import Answering, ReplayedChunk, replay_chunks

_EXAMPLES = 3


@dataclass(frozen=True)
class Comparison:
    """Chunks one by one; commands where they were asked for."""

    chunks: Sequence[ReplayedChunk]
    commands: CommandComparison | None

    @property
    def same(self) -> bool:
        """Whether everything that could be compared is the same, and something could."""
        compared = [chunk for chunk in self.chunks if chunk.rows is not None]
        commands = self.commands is None or self.commands.alike
        return bool(compared) and all(chunk.same for chunk in compared) and commands


def replay(
    bag: Bag, policy: Answering, settings: PolicySettings, loop: LoopConfig | None = None
) -> Comparison:
    """Replay a recording.

    Args:
        bag: the open recording.
        policy: answers the queries.
        settings: the policy node's settings of the recorded run.
        loop: the executor's settings of that run; without them no rows are executed.

    Raises:
        BagError: the recording lacks what a replay needs, or has no chunk.
    """
    chunks = list(replay_chunks(bag, policy, settings))
    if not chunks:
        raise BagError(f"{bag.path}: there is no chunk in the recording")
    commands = None
    if loop is not None:
        rows = {
            (int(chunk.message.epoch), int(chunk.message.sequence)): chunk.rows
            for chunk in chunks
            if chunk.rows is not None
        }
        commands = replay_commands(bag, loop, rows)
    return Comparison(chunks, commands)


def in_words(comparison: Comparison) -> str:
    """For a terminal."""
    compared = [chunk for chunk in comparison.chunks if chunk.rows is not None]
    different = [chunk for chunk in compared if not chunk.same]
    lines = [
        f"chunks: {len(comparison.chunks)} recorded, {len(compared)} made again, "
        f"{len(compared) - len(different)} of them the same bit for bit"
    ]
    if different:
        names = ", ".join(str(chunk.message.sequence) for chunk in different[:_EXAMPLES])
        more = ", ..." if len(different) > _EXAMPLES else ""
        largest = max(chunk.difference for chunk in different)
        lines.append(f"  different: {names}{more}; by {largest:.3g} at most")
    problems = Counter(chunk.problem for chunk in comparison.chunks if chunk.rows is None)
    lines += [f"  not made again: {count} x {each}" for each, count in problems.most_common(_EXAMPLES)]
    found = comparison.commands
    if found is not None:
        lines.append(
            f"control steps: {found.steps} recorded, {found.commands} with a command; {found.same} the same "
            f"bit for bit, commands differ by {found.difference:.3g} at most"
        )
        lines.append(f"executed rows: the same at {found.same_rows} of {found.steps} control steps")
        if found.missing:
            lines.append(f"  {found.missing} chunks that were accepted are not recorded")
        if not found.whole:
            lines.append("  the recording begins in the middle of a run, whose earlier chunks it lacks")
    return "\n".join(lines)
