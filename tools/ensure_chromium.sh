#!/usr/bin/env bash
# Prints the path of a Chromium or Chrome that runs, so that CHROMIUM="$(tools/ensure_chromium.sh)" holds; tests look at
# pages in it. Takes CHROMIUM, else the one on PATH; installs one when there is none and this is root on Debian;
# otherwise says the command that would, and ends with 69.
set -euo pipefail

names=(chromium google-chrome google-chrome-stable chromium-browser)

runs() { # Ubuntu's chromium-browser is a stub that only says how to get another
    [ -n "$1" ] && [ -x "$1" ] && "$1" --version 2>/dev/null </dev/null | grep -qE '(Chromium|Chrome) [0-9]+'
}

find_browser() {
    local name path
    for name in "${CHROMIUM:-}" "${names[@]}"; do
        path=$(command -v "${name:-none}" || true)
        if runs "$path"; then
            echo "$path"
            return
        fi
    done
}

install_browser() {
    local log
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
        echo "A Chromium (or Chrome) is needed. On Debian:" >&2
        echo "    sudo apt-get update && sudo apt-get install -y --no-install-recommends chromium" >&2
        exit 69
    fi
    echo "There is no Chromium: installing with apt-get" >&2
    log=$(mktemp)
    apt-get update -q >"$log" 2>&1 || true # the installation below says what could not be had
    if ! DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends chromium >>"$log" 2>&1; then
        tail -n 5 "$log" >&2
        echo "That was: apt-get install -y --no-install-recommends chromium" >&2
        exit 69
    fi
    rm -f "$log"
}

browser=$(find_browser)
if [ -z "$browser" ]; then
    install_browser
    browser=$(find_browser)
fi

if [ -z "$browser" ]; then
    echo "The Chromium that was installed does not run; set CHROMIUM to one that does." >&2
    exit 69
fi
echo "$browser"
