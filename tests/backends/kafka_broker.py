"""A real Kafka for tests: Apache's broker from `tools/kafka.sh jars`, as one process or three, on loopback.

Ports and data stay those of the object: a broker that was killed comes back as it was. Neighbour:
`kafka_security` has the users and the certificates of the listeners that ask for them.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from backends.kafka_security import Certificates, jaas_settings, scram_arguments
from clocks.eventually import eventually
from house import ROOT
from penstock_operator.local.processes.parent_death import ends_with_starter
from processes.free_ports import free_port

READY_WITHIN_S = 90
"""Two seconds on a quiet machine, twenty beside other tests."""
_CLUSTER_ID = "PenstockTests000000000"
OF_TESTS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Options of the JVM: a broker of a test is over before the better code of the second compiler pays."""
_LOOPBACK = "127.0.0.1"
_OPEN = ("PLAINTEXT", "CONTROLLER")
"""Listeners that ask nobody who he is."""
_QUIET = {"log_level": 0}
"""librdkafka tells of each connection that a killed broker cuts."""


def kafka_jars() -> Path:
    """The folder of the broker's jars; brought with Maven where this machine has none."""
    asked = subprocess.run(
        [str(ROOT / "tools/kafka.sh"), "jars"], check=True, stdout=subprocess.PIPE, text=True
    )
    return Path(asked.stdout.strip())


class KafkaBroker:
    """`nodes` processes that make one cluster; their folders are below `folder`.

    `secured` adds listeners that ask for a password (`sasl`), or speak TLS (`tls`, which asks for the
    client's certificate, and `sasl_tls`). Those are at `secured_host`; all else stays on loopback.
    """

    def __init__(
        self,
        folder: Path,
        nodes: int = 1,
        *,
        secured: bool = False,
        secured_host: str = _LOOPBACK,
        java_options: Sequence[str] = OF_TESTS,
    ) -> None:
        self._java_options = tuple(java_options)
        self.folder = folder
        self._secured_host = secured_host
        self._names = [*_OPEN, *(("SASL_PLAINTEXT", "SASL_SSL", "SSL") if secured else ())]
        self._ports = {node: {name: free_port() for name in self._names} for node in range(1, nodes + 1)}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self.certificates = Certificates(folder / "certificates") if secured else None
        self._jars = kafka_jars()
        self._clients: list[Producer] = []

    @property
    def nodes(self) -> Sequence[int]:
        return tuple(self._ports)

    @property
    def bootstrap(self) -> str:
        """Of the listener without security."""
        return self.address("PLAINTEXT")

    def address(self, listener: str) -> str:
        return ",".join(f"{self._host(listener)}:{ports[listener]}" for ports in self._ports.values())

    def _host(self, listener: str) -> str:
        return _LOOPBACK if listener in _OPEN else self._secured_host

    @property
    def pid(self) -> int:
        """Of the first node's process, which runs."""
        return self._processes[1].pid

    # --- processes ----------------------------------------------------------------------------------

    def start(self, *nodes: int) -> None:
        """Start these (all, where none is named) that do not run, and wait until all that run are there."""
        started = [node for node in nodes or self.nodes if node not in self._processes]
        for node in started:
            self._make_folder(node)
        for node in started:
            self._processes[node] = self._java(
                "-Xmx384m", "kafka.Kafka", str(self._settings(node)), node=node
            )
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, **_QUIET})

        def is_ready() -> bool:
            for node, process in self._processes.items():
                assert process.poll() is None, f"broker {node} has ended:\n{self.log(node)}"
            try:
                return len(admin.list_topics(timeout=2).brokers) >= len(self._processes)
            except KafkaException:
                return False

        eventually(is_ready, "the brokers answer", READY_WITHIN_S)

    def stop(self, *nodes: int) -> None:
        """In order: what they hold is written and handed over."""
        ending = [self._processes.pop(node) for node in nodes or self.nodes if node in self._processes]
        for process in ending:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in ending:
            try:
                process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def kill(self, *nodes: int) -> None:
        """kill -9."""
        for node in nodes or self.nodes:
            if node in self._processes:
                process = self._processes.pop(node)
                process.kill()
                process.wait()

    def restart(self, *nodes: int) -> None:
        """With the same ports and data, after a kill."""
        self.kill(*nodes)
        self.start(*nodes)

    def pause(self, *nodes: int) -> None:
        """SIGSTOP: connections stay, and nobody answers."""
        for node in nodes or self.nodes:
            self._processes[node].send_signal(signal.SIGSTOP)

    def resume(self, *nodes: int) -> None:
        for node in nodes or self.nodes:
            self._processes[node].send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End what runs, at once: nobody needs its data any more."""
        self.kill()

    def log(self, node: int = 1) -> str:
        return (self._folder(node) / "log").read_text(encoding="utf-8", errors="replace")

    def _folder(self, node: int) -> Path:
        return self.folder / f"broker-{node}"

    def _settings(self, node: int) -> Path:
        return self._folder(node) / "server.properties"

    def _make_folder(self, node: int) -> None:
        self._folder(node).mkdir(parents=True, exist_ok=True)
        template = (ROOT / "tools/kafka/server.properties").read_text(encoding="utf-8")
        ports = self._ports[node]
        replicas = min(3, len(self._ports))
        settings = {
            "node.id": str(node),
            "controller.quorum.voters": ",".join(
                f"{other}@{_LOOPBACK}:{ports['CONTROLLER']}" for other, ports in self._ports.items()
            ),
            "listeners": ",".join(f"{name}://{self._host(name)}:{port}" for name, port in ports.items()),
            "advertised.listeners": ",".join(
                f"{name}://{self._host(name)}:{port}" for name, port in ports.items() if name != "CONTROLLER"
            ),
            "log.dirs": str(self._folder(node) / "data"),
            "offsets.topic.replication.factor": str(replicas),
            "transaction.state.log.replication.factor": str(replicas),
            # A broker that is killed is noticed soon, as tests wait for it.
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
            "log.retention.check.interval.ms": "500",
            "log.segment.delete.delay.ms": "100",
            "log.initial.task.delay.ms": "100",
        }
        if self.certificates is not None:
            settings |= self.certificates.broker_settings() | jaas_settings()
        lines = [f"{name}={value}\n" for name, value in settings.items()]
        self._settings(node).write_text(template + "".join(lines), encoding="utf-8")
        scram = scram_arguments() if self.certificates is not None else ()
        formatted = self._java(
            "kafka.tools.StorageTool",
            *("format", "--ignore-formatted", "-t", _CLUSTER_ID, "-c", str(self._settings(node)), *scram),
            node=node,
        )
        assert formatted.wait() == 0, self.log(node)

    def _java(self, *arguments: str, node: int) -> subprocess.Popen[bytes]:
        java = f"{os.environ['JAVA_HOME']}/bin/java" if os.environ.get("JAVA_HOME") else "java"
        classes = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{self._jars}/*")
        with (self._folder(node) / "log").open("ab") as log:
            return subprocess.Popen(
                [java, *self._java_options, *classes, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=ends_with_starter(),
            )

    # --- what tests do with it ------------------------------------------------------------------------

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, **_QUIET})

    def create_topic(
        self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None, replicas: int = 1
    ) -> str:
        """Its name. It is there, with leaders, when this returns."""
        admin = self.admin()
        made = NewTopic(
            topic, num_partitions=partitions, replication_factor=replicas, config=dict(config or {})
        )
        admin.create_topics([made])[topic].result(30)
        self._wait_for_partitions(admin, topic, partitions)
        return topic

    def fresh_topic(self, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """A topic of a name of its own."""
        return self.create_topic(f"t-{uuid4().hex[:12]}", partitions, config, min(3, len(self._ports)))

    def leader(self, topic: str, partition: int = 0) -> int:
        """The node that leads it."""
        leader: int = self.admin().list_topics(topic, timeout=30).topics[topic].partitions[partition].leader
        return leader

    def add_partitions(self, topic: str, partitions: int) -> None:
        """Until it has so many."""
        admin = self.admin()
        admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)
        self._wait_for_partitions(admin, topic, partitions)

    def delete_topic(self, topic: str) -> None:
        admin = self.admin()
        admin.delete_topics([topic])[topic].result(30)
        eventually(lambda: topic not in admin.list_topics(timeout=10).topics, f"{topic} is gone")

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """As retention does."""
        admin = self.admin()
        for done in admin.delete_records([TopicPartition(topic, partition, before)]).values():
            done.result(30)

    @contextmanager
    def producer(self, **settings: object) -> Iterator[Producer]:
        """One whose records are there when it is left."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 1, **_QUIET, **settings})
        yield producer
        assert producer.flush(60) == 0

    def produce(
        self, topic: str, values: Iterable[bytes | str | None], partition: int = 0, key: bytes | None = None
    ) -> None:
        """These values, in order, into one partition."""
        with self.producer(acks="all") as producer:
            for value in values:
                _produce(producer, topic, value, partition, key)

    def committed(self, topic: str, within_s: float = 30) -> list[Message]:
        """Every record of the topic that a reader of committed records sees, partition by partition."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": f"check-{uuid4().hex}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                **_QUIET,
            }
        )
        try:
            partitions = consumer.list_topics(topic, timeout=within_s).topics[topic].partitions
            consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
            left, found = set(partitions), []
            while left:
                message = consumer.poll(within_s)
                assert message is not None, f"partitions {sorted(left)} of {topic} do not come to their end"
                error = message.error()
                if error is None:
                    found.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
                else:
                    raise KafkaException(error)
        finally:
            consumer.close()
        return sorted(found, key=lambda message: (message.partition(), message.offset()))

    def _wait_for_partitions(self, admin: AdminClient, topic: str, partitions: int) -> None:
        def has_leaders() -> bool:
            found = admin.list_topics(topic, timeout=10).topics[topic].partitions
            return len(found) == partitions and all(part.leader > 0 for part in found.values())

        eventually(has_leaders, f"{topic} has leaders")


def _produce(
    producer: Producer, topic: str, value: bytes | str | None, partition: int, key: bytes | None
) -> None:
    while True:
        try:
            producer.produce(topic, value, key=key, partition=partition)
        except BufferError:
            producer.poll(1)
        else:
            producer.poll(0)
            return
