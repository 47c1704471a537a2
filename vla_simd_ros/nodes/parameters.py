"""The parameters of a lifecycle node: declared with a description, validated together.

Values are checked when the node is configured, so that a wrong value in a parameter file leaves a node that
can be told the right one, and again whenever one is set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rcl_interfaces.msg import ParameterDescriptor, SetParametersResult
from rclpy.lifecycle import LifecycleNode
from rclpy.parameter import Parameter

from vla_simd_ros.nodes.param import LONGEST_S, Param, ParameterError, as_declared, checked, per_joint

__all__ = ["LONGEST_S", "NodeParameters", "Param", "ParameterError", "per_joint"]

UNCONFIGURED = "unconfigured"


class NodeParameters:
    """The parameters of one lifecycle node.

    They can be set while the node is unconfigured; a configured node refuses, since it would not act on it,
    but for those that are live.

    Args:
        node: the node whose parameters they are.
        specs: what they may be.
        change: called with the new values of live ones that are set together when the node is configured;
            raises ParameterError, and changes nothing, where it cannot have them.
    """

    def __init__(
        self, node: LifecycleNode, specs: Sequence[Param], change: Callable[[Mapping[str, Any]], None]
    ) -> None:
        self._node = node
        self._change = change
        self._specs = {spec.name: spec for spec in specs}
        for spec in specs:
            # Dynamic typing lets a file say 30 where 30.0 is meant; problem() checks the type.
            descriptor = ParameterDescriptor(
                description=spec.description, additional_constraints=spec.expectation, dynamic_typing=True
            )
            node.declare_parameter(spec.name, spec.default, descriptor)
        node.add_on_set_parameters_callback(self._on_set)

    def read(self) -> dict[str, Any]:
        """All values, numbers of float parameters as float.

        Raises:
            ParameterError: names every value that does not fit and what was expected.
        """
        values = {name: self._node.get_parameter(name).value for name in self._specs}
        return checked(list(self._specs.values()), values)

    def _on_set(self, parameters: Sequence[Parameter]) -> SetParametersResult:
        for parameter in parameters:
            spec = self._specs.get(parameter.name)
            if spec is None:
                continue
            state = self._node._state_machine.current_state[1]
            problem = spec.problem(parameter.value)
            if problem is None and state != UNCONFIGURED and not spec.live:
                problem = f"{parameter.name}: the node is {state}; clean it up first, then set and configure"
            if problem is not None:
                return SetParametersResult(successful=False, reason=problem)
        return self._changed(parameters)

    def _changed(self, parameters: Sequence[Parameter]) -> SetParametersResult:
        """Make live parameters hold at once."""
        if self._node._state_machine.current_state[1] == UNCONFIGURED:
            return SetParametersResult(successful=True)
        values = {each.name: each.value for each in parameters if each.name in self._specs}
        try:
            if values:
                self._change({name: as_declared(self._specs[name], each) for name, each in values.items()})
        except ParameterError as error:
            return SetParametersResult(successful=False, reason=str(error))
        return SetParametersResult(successful=True)
