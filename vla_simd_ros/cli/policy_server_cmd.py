"""``vla_simd policy-server``: serves a policy to robots that run LeRobot's asynchronous inference client."""

from __future__ import annotations

import argparse
import ipaddress
import logging
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vla_simd_ros.cli.arguments import (
    add_decoder,
    add_num_steps,
    add_seed,
    add_settings,
    decoder_options,
    setting_changes,
)

if TYPE_CHECKING:
    from vla_simd_ros.inference import Policy

_MIB = 1024 * 1024
_MAX_PORT = 65535


def add_parser(commands: Any) -> None:
    """Add this command to argparse's ``commands``."""
    parser = commands.add_parser(
        "policy-server",
        help="serve a policy to LeRobot's robot_client",
        description="Serve a policy over LeRobot's asynchronous inference protocol, to an unchanged "
        "robot_client of LeRobot 0.4 or 0.6. There is no encryption and no password: serve to "
        "other machines in a trusted network only.",
    )
    served = parser.add_mutually_exclusive_group(required=True)
    served.add_argument(
        "checkpoint", nargs="?", type=Path, help="the policy to serve, whatever name the client gives it"
    )
    served.add_argument(
        "--root",
        type=Path,
        metavar="FOLDER",
        help="serve any checkpoint below this folder, as the client asks",
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen at (default: this machine only)"
    )
    parser.add_argument("--port", type=_port, default=8080, help="0 takes a free one (default: 8080)")
    parser.add_argument(
        "--rate", type=_positive, default=30.0, metavar="HZ", help="control steps per second (default: 30)"
    )
    parser.add_argument(
        "--observation-timeout", type=_positive, default=2.0, metavar="SECONDS",
        help="how long a request for actions waits for an observation (default: 2)",
    )  # fmt: skip
    parser.add_argument(
        "--least-motion", type=_not_negative, default=1.0, metavar="NORM",
        help="skip observations whose joints moved less since the last one used, unless the client's buffer "
        "is empty; in the robot's units (default: 1)",
    )  # fmt: skip
    parser.add_argument(
        "--max-observation",
        type=_positive,
        default=64.0,
        metavar="MIB",
        help="largest observation (default: 64)",
    )
    parser.add_argument(
        "--client-idle", type=_positive, default=10.0, metavar="SECONDS",
        help="another client may take the place of one that has not called for this long (default: 10)",
    )  # fmt: skip
    add_num_steps(parser)
    add_seed(parser)
    add_decoder(parser)
    parser.add_argument("--verbose", action="store_true", help="say what happens to every observation")
    add_settings(parser)


def run(args: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM."""
    from vla_simd_ros.server.policy_server import PolicyServer, PolicyServicer, ServerSettings

    logging.basicConfig(
        level=logging.DEBUG if args.verbose else logging.INFO,
        format="%(asctime)s %(message)s",
        stream=sys.stderr,
    )
    settings = ServerSettings(
        host=args.host,
        port=args.port,
        rate=args.rate,
        observation_timeout_s=args.observation_timeout,
        least_motion=args.least_motion,
        max_observation_bytes=int(args.max_observation * _MIB),
        client_idle_s=args.client_idle,
        num_steps=args.num_steps,
    )
    server = PolicyServer(PolicyServicer(_catalog(args), settings), settings)
    if not _is_loopback(args.host):
        logging.warning("anyone who reaches %s can use this server: it has no password", args.host)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    server.start()
    print(f"listening at {args.host}:{server.port}", flush=True)
    try:
        server.wait()
    except KeyboardInterrupt:
        server.stop()
    return 0


def _catalog(args: argparse.Namespace) -> Any:
    from vla_simd_ros.inference import Policy
    from vla_simd_ros.server.catalog import FixedPolicy, PolicyFolder

    changes = setting_changes(args)
    decoder = asdict(decoder_options(args))

    def load(folder: Path) -> Policy:
        policy = Policy.load(folder, settings=args.settings, seed=args.seed, **decoder, **changes)
        policy.warm_up()
        return policy

    return FixedPolicy(args.checkpoint, load) if args.checkpoint else PolicyFolder(args.root, load)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= _MAX_PORT:
        raise argparse.ArgumentTypeError(f"{text} is no port, expected 0 to {_MAX_PORT}")
    return port


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def _not_negative(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is below 0 or not a number")
    return value
