"""The simulated world as a MuJoCo model (MJCF), written from the same data that the kinematics use."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable

from vla_simd_ros.sim.arm import LINKS, Joint, Link
from vla_simd_ros.sim.scene import CAMERAS, CUBES, LIGHT_DIRECTION, PADS, ROOM, TABLE, Camera
from vla_simd_ros.sim.shapes import Box, Capsule, Shape

TIMESTEP = 0.002
"""Seconds of one physics step."""

# A bus servo with its gear train: stiff position control, friction, and the rotor's inertia seen
# through the gears. The torque is that of a stalled 12 V servo.
_SERVO = {"damping": 1.1, "frictionloss": 0.05, "armature": 0.028}
_POSITION_GAIN = 40.0
_STALL_TORQUE = 2.9

# Contacts of a hard, dull surface: what is squeezed by the jaws neither sinks into them nor slides out.
_CONTACT = {"solref": "0.005 1", "solimp": "0.98 0.999 0.001", "condim": "4", "friction": "1 0.01 0.0001"}


def build_mjcf(width: int, height: int) -> str:
    """The model as XML, with an off-screen buffer for pictures of up to `width` x `height`."""
    root = ET.Element("mujoco", model="so101_table")
    ET.SubElement(root, "compiler", angle="radian", autolimits="true")
    # Elliptic cones and a high ratio of impedances keep what the jaws hold from creeping out of them.
    option = ET.SubElement(root, "option", timestep=str(TIMESTEP), integrator="implicitfast")
    option.attrib.update(cone="elliptic", impratio="10")
    _add_visuals(root, width, height)
    world = ET.SubElement(root, "worldbody")
    _add_light(world)
    for surface in ROOM:
        _add_shape(world, surface, contacts=True)
    _add_shape(world, TABLE, contacts=True)
    for pad in PADS:
        _add_paint(world, pad.box)
    _add_cubes(world)
    _add_arm(world)
    for camera in CAMERAS.values():
        owner = world if not camera.link else root.find(f".//body[@name='{camera.link}']")
        assert owner is not None, f"camera {camera.name!r} is fixed to an unknown link {camera.link!r}"
        _add_camera(owner, camera)
    actuators = ET.SubElement(root, "actuator")
    for link in LINKS:
        if link.joint is not None:
            _add_actuator(actuators, link.joint)
    return ET.tostring(root, encoding="unicode")


def _add_light(world: ET.Element) -> None:
    light = ET.SubElement(world, "light", pos="0.6 -0.5 1.5", dir=_numbers(LIGHT_DIRECTION))
    light.attrib.update(directional="true", castshadow="false")


def _add_visuals(root: ET.Element, width: int, height: int) -> None:
    visual = ET.SubElement(root, "visual")
    ET.SubElement(visual, "global", offwidth=str(width), offheight=str(height))
    # Coarse round shapes: a third off the time of a picture at sizes where the difference cannot be seen.
    quality = ET.SubElement(visual, "quality", offsamples="0", shadowsize="0")
    quality.attrib.update(numslices="12", numstacks="6", numquads="1")
    ET.SubElement(visual, "map", znear="0.01", zfar="20")
    ET.SubElement(visual, "headlight", ambient="0.35 0.35 0.35", diffuse="0.25 0.25 0.25", specular="0 0 0")
    ET.SubElement(root, "statistic", extent="1", center="0.2 0 0.1")


def _add_cubes(world: ET.Element) -> None:
    for cube in CUBES:
        body = ET.SubElement(world, "body", name=cube.name, pos=_numbers(cube.start))
        ET.SubElement(body, "freejoint", name=cube.name)
        _add_shape(body, cube.box, contacts=True, mass=cube.mass)


def _add_arm(world: ET.Element) -> None:
    parent = world
    for link in LINKS:
        body = ET.SubElement(parent, "body", name=link.name, pos=_numbers(link.offset))
        if link.joint is not None:
            joint = ET.SubElement(body, "joint", name=link.joint.name, axis=_numbers(link.joint.axis))
            joint.set("range", _numbers((link.joint.lower, link.joint.upper)))
            joint.attrib.update({key: str(value) for key, value in _SERVO.items()})
        _add_link_shapes(body, link)
        parent = body


def _add_link_shapes(body: ET.Element, link: Link) -> None:
    total = sum(shape.volume for shape in link.shapes)
    for shape in link.shapes:
        _add_shape(body, shape, contacts=False, mass=link.mass * shape.volume / total)


def _add_paint(world: ET.Element, box: Box) -> None:
    """A box that can be seen and not touched."""
    geom = ET.SubElement(world, "geom", contype="0", conaffinity="0", rgba=_numbers((*box.color, 1.0)))
    geom.attrib.update(type="box", pos=_numbers(box.center), size=_numbers(box.half_size))


def _add_shape(body: ET.Element, shape: Shape, *, contacts: bool, mass: float | None = None) -> None:
    """Shapes with `contacts` stop each other and the arm; the arm's own shapes pass through each other."""
    geom = ET.SubElement(body, "geom", contype="1", conaffinity="1" if contacts else "0")
    geom.attrib.update(_CONTACT)
    geom.set("rgba", _numbers((*shape.color, 1.0)))
    if mass is not None:
        geom.set("mass", f"{mass:.6g}")
    if isinstance(shape, Capsule):
        ends = _numbers((*shape.start, *shape.end))
        geom.attrib.update(type="capsule", fromto=ends, size=str(shape.radius))
    else:
        geom.attrib.update(type="box", pos=_numbers(shape.center), size=_numbers(shape.half_size))


def _add_camera(body: ET.Element, camera: Camera) -> None:
    axes = camera.axes()
    ET.SubElement(
        body,
        "camera",
        name=camera.name,
        pos=_numbers(camera.position),
        xyaxes=_numbers((*axes[:, 0], *axes[:, 1])),
        fovy=str(camera.fovy),
    )


def _add_actuator(actuators: ET.Element, joint: Joint) -> None:
    ET.SubElement(
        actuators,
        "position",
        name=joint.name,
        joint=joint.name,
        kp=str(_POSITION_GAIN),
        ctrlrange=_numbers((joint.lower, joint.upper)),
        forcerange=_numbers((-_STALL_TORQUE, _STALL_TORQUE)),
    )


def _numbers(values: Iterable[float]) -> str:
    return " ".join(f"{value:.9g}" for value in values)
