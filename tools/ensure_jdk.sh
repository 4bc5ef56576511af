#!/usr/bin/env bash
# Prints the home of a JDK 17 or later, so that JAVA_HOME="$(tools/ensure_jdk.sh)" holds.
# Takes JAVA_HOME, else the javac on PATH; installs one when there is none and this is root on Debian or Ubuntu;
# otherwise says the command that would, and ends with 69. Spark's scripts also need `ps`.
set -euo pipefail

oldest=17
feature_version() { # of a JDK's home: 17 for "javac 17.0.15", nothing when it has no compiler
    "$1/bin/javac" -version 2>&1 | sed -n 's/^javac \([0-9]*\).*/\1/p' || true
}

fits() {
    local version
    [ -n "$1" ] && [ -x "$1/bin/javac" ] && [ -x "$1/bin/java" ] || return 1
    version=$(feature_version "$1")
    [ "${version:-0}" -ge "$oldest" ]
}

find_home() {
    local compiler home
    if fits "${JAVA_HOME:-}"; then
        echo "$JAVA_HOME"
        return
    fi
    for compiler in "$(command -v javac || true)" /usr/lib/jvm/*/bin/javac; do
        [ -n "$compiler" ] && [ -x "$compiler" ] || continue
        home=$(dirname "$(dirname "$(readlink -f "$compiler")")")
        if fits "$home"; then
            echo "$home"
            return
        fi
    done
}

jdk_package() { # Debian 12 and Ubuntu 22.04 have 17; Debian 13 begins at 21
    local version
    for version in 17 21; do
        if apt-cache show "openjdk-$version-jdk-headless" >/dev/null 2>&1; then
            break
        fi
    done
    echo "openjdk-$version-jdk-headless"
}

install_missing() {
    local log missing=()
    command -v ps >/dev/null || missing+=(procps)
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
        [ -n "$home" ] || missing+=("openjdk-$oldest-jdk-headless")
        echo "A JDK $oldest or later (with javac) and ps are needed. On Debian or Ubuntu:" >&2
        echo "    sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
        exit 69
    fi
    echo "There is no JDK $oldest or later, or no ps: installing with apt-get" >&2
    log=$(mktemp)
    apt-get update -q >"$log" 2>&1 || true # the installation below says what could not be had
    [ -n "$home" ] || missing+=("$(jdk_package)")
    if ! DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" >>"$log" 2>&1; then
        tail -n 5 "$log" >&2
        echo "That was: apt-get install -y --no-install-recommends ${missing[*]}" >&2
        exit 69
    fi
    rm -f "$log"
}

home=$(find_home)
if [ -z "$home" ] || ! command -v ps >/dev/null; then
    install_missing
    home=$(find_home)
fi

if [ -z "$home" ]; then
    echo "No JDK $oldest or later was found after the installation; set JAVA_HOME to one." >&2
    exit 69
fi
echo "$home"
