#!/usr/bin/env bash
# Runs the suite as two processes side by side: the job and everything else that takes a Spark session of its own kind,
# and the rest. Tests of Spark wait more than they compute, so two cores get through both in little more than the longer
# one takes alone. Each half has its own session, services and folders.
#
# usage: tools/test_halves.sh COMMAND...        (what runs pytest)
set -uo pipefail

halves=$(mktemp -d)
trap 'rm -rf "$halves"' EXIT
first=(tests/spark)
"$@" "${first[@]}" > "$halves/first.log" 2>&1 &
running=$!
trap 'kill "$running" 2>/dev/null; rm -rf "$halves"; exit 130' INT TERM

"$@" --ignore=tests/spark
rest=$?
echo "The other half, ${first[*]}, ran beside it; waiting for its end" >&2
wait "$running"
spark=$?
cat "$halves/first.log"
if [ "$rest" -ne 0 ] || [ "$spark" -ne 0 ]; then
    echo "tests of Spark ended with $spark, the others with $rest" >&2
    exit 1
fi
