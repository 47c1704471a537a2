from __future__ import annotations

from pathlib import Path

from vla_simd_ros.benchmarks.sensors import Reading, SensorWatch, read_sensors, summarize_readings


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_hottest_zone_and_the_mean_clock(tmp_path: Path) -> None:
    write(tmp_path / "class/thermal/thermal_zone0/temp", "41000\n")
    write(tmp_path / "class/thermal/thermal_zone1/temp", "63500\n")
    write(tmp_path / "class/thermal/thermal_zone2/temp", "not a number\n")
    write(tmp_path / "devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "2400000\n")
    write(tmp_path / "devices/system/cpu/cpu1/cpufreq/scaling_cur_freq", "1200000\n")
    assert read_sensors(tmp_path) == Reading(63.5, 1800.0)


def test_a_machine_that_tells_nothing(tmp_path: Path) -> None:
    assert read_sensors(tmp_path) == Reading(None, None)


def test_medians_of_what_is_known() -> None:
    assert summarize_readings([Reading(1.0, None), Reading(3.0, None), Reading(2.0, 5.0)]) == Reading(
        2.0, 5.0
    )
    assert summarize_readings([]) == Reading(None, None)


def test_a_watch_reads_from_the_start_on_and_ends() -> None:
    values = iter(range(10**6))
    with SensorWatch(lambda: Reading(float(next(values))), every_s=0.001) as watch:
        while len(watch.readings) < 3:
            pass
    read = len(watch.readings)
    assert [reading.celsius for _, reading in watch.readings] == list(range(read))
    times = [at for at, _ in watch.readings]
    assert times == sorted(times) and times[0] >= 0
