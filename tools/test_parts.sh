#!/usr/bin/env bash
# Runs the suite as three processes side by side: the files of tests/spark, dealt out to two of them, and the rest. Tests
# of Spark wait more than they compute, so two cores get through all three in little more than the longest one takes
# alone. Each part has its own session, services and folders.
#
# usage: tools/test_parts.sh COMMAND...        (what runs pytest)
set -uo pipefail

logs=$(mktemp -d)
even=() odd=()
for file in tests/spark/test_*.py; do
    if [ "${#even[@]}" -gt "${#odd[@]}" ]; then odd+=("$file"); else even+=("$file"); fi
done
"$@" "${even[@]}" > "$logs/even.log" 2>&1 &
running=($!)
"$@" "${odd[@]}" > "$logs/odd.log" 2>&1 &
running+=($!)
trap 'rm -rf "$logs"' EXIT
trap 'kill "${running[@]}" 2>/dev/null; rm -rf "$logs"; exit 130' INT TERM

"$@" --ignore=tests/spark
rest=$?
echo "The tests of Spark ran beside it, in two parts; waiting for their end" >&2
wait "${running[0]}"
first=$?
wait "${running[1]}"
second=$?
cat "$logs/even.log" "$logs/odd.log"
if [ "$rest" -ne 0 ] || [ "$first" -ne 0 ] || [ "$second" -ne 0 ]; then
    echo "the parts of Spark's tests ended with $first and $second, the others with $rest" >&2
    exit 1
fi
