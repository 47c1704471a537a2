"""Pictures from both renderers: shape, determinism, contents, and the fallback without a driver."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest

from vla_simd_ros.sim import gl_renderer, rendering
from vla_simd_ros.sim.arm import HOME
from vla_simd_ros.sim.cv_renderer import CvRenderer
from vla_simd_ros.sim.gl_renderer import GlRenderer, GlUnavailable
from vla_simd_ros.sim.physics import Physics, SimulationError
from vla_simd_ros.sim.rendering import Renderer, open_renderer
from vla_simd_ros.sim.scene import CAMERAS, PADS, Pad

pytest.importorskip("mujoco", reason="needs the simulation's packages: pip install 'vla_simd_ros[sim]'")

WIDTH, HEIGHT = 160, 120


def _gl_problem() -> str:
    try:
        GlRenderer(Physics(16, 16).model, 16, 16).close()
    except GlUnavailable as error:
        return str(error)
    return ""


_PROBLEM = _gl_problem()
needs_gl = pytest.mark.skipif(
    bool(_PROBLEM), reason=f"needs an OpenGL driver (libegl1, libegl-mesa0): {_PROBLEM}"
)


@pytest.fixture
def physics() -> Physics:
    return Physics(WIDTH, HEIGHT)


@pytest.fixture(params=["opencv", pytest.param("egl", marks=needs_gl)])
def renderer(request: pytest.FixtureRequest, physics: Physics) -> Iterator[Renderer]:
    opened = open_renderer(request.param, physics.model, WIDTH, HEIGHT, pytest.fail)
    assert opened.name == request.param
    yield opened
    opened.close()


@pytest.mark.parametrize("camera", list(CAMERAS))
def test_picture(renderer: Renderer, physics: Physics, camera: str) -> None:
    picture = renderer.render(physics.snapshot(), camera)
    assert picture.shape == (HEIGHT, WIDTH, 3)
    assert picture.dtype == np.uint8
    assert picture.flags.c_contiguous
    assert picture.std() > 10.0


@pytest.mark.parametrize("camera", list(CAMERAS))
def test_same_state_gives_the_same_picture(renderer: Renderer, physics: Physics, camera: str) -> None:
    start = physics.snapshot()
    first = renderer.render(start, camera)
    physics.set_command(HOME + 0.4)
    physics.advance(300)
    other = renderer.render(physics.snapshot(), camera)
    np.testing.assert_array_equal(renderer.render(start, camera), first)
    assert (other != first).any()


def test_pictures_do_not_share_memory(renderer: Renderer, physics: Physics) -> None:
    first = renderer.render(physics.snapshot(), "front")
    kept = first.copy()
    renderer.render(physics.snapshot(), "wrist")
    np.testing.assert_array_equal(first, kept)


def _center(mask: np.ndarray) -> tuple[float, float]:
    rows, columns = np.nonzero(mask)
    assert rows.size > 10, "the cube is not in the picture"
    return float(columns.mean()), float(rows.mean())


@pytest.mark.parametrize("channel", [0, 1, 2], ids=["red", "green", "blue"])
def test_cubes_are_where_the_pinhole_model_puts_them(
    renderer: Renderer, physics: Physics, channel: int
) -> None:
    snapshot = physics.snapshot()
    picture = renderer.render(snapshot, "front").astype(int)
    others = [index for index in range(3) if index != channel]
    mask = picture[..., channel] > 1.8 * picture[..., others].max(axis=-1)
    column, row = _center(mask)
    camera = CAMERAS["front"]
    right, up, backward = camera.axes().T @ (snapshot.cubes[channel, :3] - np.array(camera.position))
    focal = camera.focal_length(HEIGHT)
    assert column == pytest.approx(WIDTH / 2 - focal * right / backward, abs=2.0)
    assert row == pytest.approx(HEIGHT / 2 + focal * up / backward, abs=2.0)


@pytest.mark.parametrize("pad", PADS, ids=[pad.name for pad in PADS])
def test_pads_are_painted_where_the_scene_has_them(renderer: Renderer, physics: Physics, pad: Pad) -> None:
    picture = renderer.render(physics.snapshot(), "front").astype(float)
    camera = CAMERAS["front"]

    def seen(x: float, y: float) -> np.ndarray:
        right, up, backward = camera.axes().T @ (np.array((x, y, 0.0)) - np.array(camera.position))
        focal = camera.focal_length(HEIGHT)
        column, row = WIDTH / 2 - focal * right / backward, HEIGHT / 2 + focal * up / backward
        return picture[int(row), int(column)]

    inside = [seen(pad.center[0] + x, pad.center[1] + y) for x in (-0.03, 0.03) for y in (-0.03, 0.03)]
    outside = seen(pad.center[0] + 0.06, pad.center[1])
    for color in inside:
        # The paint's own hue, and nothing of the table's.
        assert np.ptp(color) < 0.2 * max(60.0, color.max())
        assert np.abs(color - outside).max() > 60.0


@needs_gl
@pytest.mark.parametrize("camera", list(CAMERAS))
def test_both_renderers_show_the_same_scene(physics: Physics, camera: str) -> None:
    physics.set_command([0.3, 0.0, 0.3, 0.9, 0.4, 0.9])
    physics.advance(500)
    gl = GlRenderer(physics.model, WIDTH, HEIGHT)
    pictures = [each.render(physics.snapshot(), camera) for each in (gl, CvRenderer(WIDTH, HEIGHT))]
    gl.close()
    dark = [picture.max(axis=-1) < 60 for picture in pictures]  # the servos
    overlap = (dark[0] & dark[1]).sum() / (dark[0] | dark[1]).sum()
    assert overlap > 0.6


def test_unknown_renderer(physics: Physics) -> None:
    with pytest.raises(SimulationError, match="renderer: got 'vulkan', expected one of auto, egl, opencv"):
        open_renderer("vulkan", physics.model, WIDTH, HEIGHT, pytest.fail)


def _no_driver(*_: object) -> Renderer:
    raise GlUnavailable("ImportError: libEGL.so.1 not found")


def test_without_a_driver_auto_falls_back_and_names_the_packages(
    monkeypatch: pytest.MonkeyPatch, physics: Physics
) -> None:
    monkeypatch.setattr(rendering, "GlRenderer", _no_driver)
    warnings: list[str] = []
    opened = open_renderer("auto", physics.model, WIDTH, HEIGHT, warnings.append)
    assert opened.name == "opencv"
    assert len(warnings) == 1
    for expected in ("libEGL.so.1 not found", "libegl1", "libegl-mesa0", "OpenCV"):
        assert expected in warnings[0]


def test_without_a_driver_egl_is_an_error(monkeypatch: pytest.MonkeyPatch, physics: Physics) -> None:
    monkeypatch.setattr(rendering, "GlRenderer", _no_driver)
    with pytest.raises(SimulationError, match=r"renderer 'egl': no OpenGL driver .*libegl-mesa0"):
        open_renderer("egl", physics.model, WIDTH, HEIGHT, pytest.fail)


def test_a_platform_that_cannot_be_opened_is_unavailable(
    monkeypatch: pytest.MonkeyPatch, physics: Physics
) -> None:
    def broken(name: str) -> None:
        raise AttributeError(f"'NoneType' object has no attribute 'eglQueryString' ({name})")

    monkeypatch.setattr(gl_renderer, "load_mujoco", lambda: None)
    monkeypatch.setattr("importlib.import_module", broken)
    with pytest.raises(GlUnavailable, match=r"AttributeError: .*eglQueryString"):
        GlRenderer(physics.model, WIDTH, HEIGHT)


@needs_gl
def test_gl_refuses_another_thread(physics: Physics) -> None:
    gl = GlRenderer(physics.model, WIDTH, HEIGHT)
    problems: list[str] = []

    def use() -> None:
        try:
            gl.render(physics.snapshot(), "front")
        except RuntimeError as error:
            problems.append(str(error))

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    gl.close()
    assert problems and "another thread" in problems[0]


def test_opencv_copes_with_shapes_at_and_behind_the_camera(physics: Physics) -> None:
    """A closed gripper turned right before the wrist camera, and the arm folded onto itself."""
    drawer = CvRenderer(WIDTH, HEIGHT)
    for angles in (
        [0, -1.7, 1.69, 1.65, 0, 1.74],
        [0, -1.7, 1.69, 1.65, 2.8, -0.17],
        [0, 1.2, -1.6, -1.6, 0, 1.7],
    ):
        physics.place(angles)
        assert drawer.render(physics.snapshot(), "wrist").shape == (HEIGHT, WIDTH, 3)
