"""every_load.py BROKER LOAD SECONDS: puts a broker under every kind of load of mcp-broker-load, each for so many seconds, for
scripts/profile. Nothing is measured.

A storage or a door that is left out here would be compiled for size.
"""
import subprocess
import sys
import tempfile
from pathlib import Path

from servers import Broker, Redis

MESSAGES = [
    "direct --pairs 50 --window 1",
    "direct --pairs 50 --window 64",
    "direct --pairs 50 --window 64 --ack manual",
    "direct --pairs 50 --window 64 --size 4000",
    "broadcast --subscribers 500 --window 1",
    "offline --recipients 20 --each 500 --senders 20 --window 64",
]
ONLY_ON_MEMORY = [
    "direct --pairs 50 --window 64 --lenses older",
    "latency --count 500",
    "storm --connections 300",
    "idle --connections 300",
]
# These start brokers of their own.
ALONE = [
    "gateway --rows run,stdio,http-stdio,http-http,flight,large,list --rounds 1 --calls 300",
    "front --starts 3 --broker-starts 2 --wakes 10 --idle 1",
    "desk --answers 100 --questions 500 --lists 20 --yapping 20",
]


def put_under(load, seconds, workloads, brokers):
    for workload in workloads:
        options = [option for broker in brokers for option in ("--url", broker.url)]
        print(f"==> {workload}", flush=True)
        subprocess.run([load, "--seconds", seconds, *options, *workload.split()], check=True, stdout=subprocess.DEVNULL)


def main(broker, load, seconds):
    with tempfile.TemporaryDirectory() as home:
        with Broker(broker, home) as one:
            put_under(load, seconds, MESSAGES + ONLY_ON_MEMORY, [one])
        with Broker(broker, home, "--storage", "disk", "--data-dir", str(Path(home) / "data")) as one:
            put_under(load, seconds, MESSAGES, [one])
        with Redis(home) as redis:
            on_redis = ["--storage", "redis", "--redis-url", redis.url]
            with Broker(broker, home, *on_redis) as one, Broker(broker, home, *on_redis) as other:
                put_under(load, seconds, MESSAGES, [one, other])
    for workload in ALONE:
        put_under(load, seconds, [f"{workload} --binary {broker}"], [])


main(*sys.argv[1:])
