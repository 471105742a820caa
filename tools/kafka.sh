#!/usr/bin/env bash
# Apache Kafka's own broker, from its jars on Maven Central: for trying things out, and for the tests.
#
#   tools/kafka.sh up      starts one at 127.0.0.1:9092 (PENSTOCK_KAFKA_PORT), data and log in .penstock/kafka
#   tools/kafka.sh down    ends it; its topics stay until .penstock/kafka is removed
#   tools/kafka.sh jars    prints the folder with its jars
#   tools/kafka.sh spark   prints the folder with those of Spark's connector for Kafka, which a bench compares with
#   tools/kafka.sh flink   prints the folder with the one of Flink's connector for Kafka, likewise
#
# Jars (43 MB, 10 MB, 10 MB) are brought with Maven once for a machine, into ~/.cache/penstock.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=tools/maven_jars.sh
source tools/maven_jars.sh
readonly folder=.penstock/kafka
readonly pid_file=$folder/pid log=$folder/broker.log settings=$folder/server.properties
readonly port=${PENSTOCK_KAFKA_PORT:-9092}
readonly controller_port=$((port + 1))
readonly starts_within_s=60 ends_within_s=60
# Of one cluster that is never joined by another.
readonly cluster_id=PenstockLocalKafka0000
java=${JAVA_HOME:+$JAVA_HOME/bin/}java

say() { printf 'kafka: %s\n' "$*" >&2; }

fail() {
    say "$*"
    exit 1
}

jars() { jars_of tools/kafka/pom.xml kafka; }

is_running() { [[ -s $pid_file ]] && kill -0 "$(<"$pid_file")" 2>/dev/null; }

listens() { (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; }

up() {
    local jars pid
    if is_running; then
        say "runs already (process $(<"$pid_file")), at 127.0.0.1:$port"
        return
    fi
    if listens; then fail "something else listens on port $port: end it, or set PENSTOCK_KAFKA_PORT"; fi
    jars=$(jars)
    mkdir -p "$folder"
    {
        cat tools/kafka/server.properties
        printf '%s\n' "node.id=1" "controller.quorum.voters=1@127.0.0.1:$controller_port" \
            "listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$controller_port" \
            "advertised.listeners=PLAINTEXT://127.0.0.1:$port" "log.dirs=$PWD/$folder/data" \
            "auto.create.topics.enable=true"
    } >"$settings"
    local quiet=(-Dorg.slf4j.simpleLogger.defaultLogLevel=warn)
    "$java" "${quiet[@]}" -cp "$jars/*" kafka.tools.StorageTool format --ignore-formatted -t "$cluster_id" \
        -c "$settings" >"$log" 2>&1 || { cat "$log" >&2; fail "its folder could not be made"; }
    # A session of its own: Ctrl-C in the terminal is for what reads from it.
    setsid "$java" -Xmx384m "${quiet[@]}" -cp "$jars/*" kafka.Kafka "$settings" >>"$log" 2>&1 </dev/null &
    pid=$!
    echo "$pid" >"$pid_file"
    for ((tenth = 0; tenth < starts_within_s * 10; tenth++)); do
        if listens; then
            say "is up at 127.0.0.1:$port; log in $log"
            return
        fi
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
    done
    tail -n 20 "$log" >&2
    fail "did not come up; the end of $log stands above"
}

down() {
    local pid
    if ! is_running; then
        rm -f "$pid_file"
        say "does not run"
        return
    fi
    pid=$(<"$pid_file")
    kill "$pid"
    for ((tenth = 0; tenth < ends_within_s * 10; tenth++)); do
        if ! kill -0 "$pid" 2>/dev/null; then
            rm -f "$pid_file"
            say "has ended"
            return
        fi
        sleep 0.1
    done
    fail "process $pid does not end; look into $log"
}

case ${1:-} in
    up) up ;;
    down) down ;;
    jars) jars ;;
    spark) jars_of tools/kafka/spark.xml spark-kafka ;;
    flink) jars_of tools/kafka/flink.xml flink-kafka ;;
    *) fail "knows up, down, jars, spark and flink, not '${1:-}'" ;;
esac
