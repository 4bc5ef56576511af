#!/usr/bin/env bash
# Tries the project on a bare Debian, as a newcomer would: a minimal system in a chroot, a clone of this checkout's HEAD,
# and the verbs that the README names. Needs root and debootstrap. What this machine uses to reach its package
# registries (certificates, proxies, settings of apt, pip and Go) is carried over.
#
# usage: tests/fresh_machine.sh [VERB...]        (default: demo test)
# Variables: FRESH_MACHINE_KEEP=1 keeps the system for a look; its folder is printed.
set -euo pipefail

verbs=("$@")
[ "${#verbs[@]}" -gt 0 ] || verbs=(demo test)
suite=bookworm
packages=python3,python3-venv,make,ca-certificates,git
checkout=$(git -C "$(dirname "$0")" rev-parse --show-toplevel)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/sparkcrypt
base=$cache/debian-$suite-minbase.tar

[ "$(id -u)" -eq 0 ] || { echo "debootstrap and chroot need root" >&2; exit 69; }
command -v debootstrap >/dev/null || { echo "debootstrap is needed: apt-get install -y debootstrap" >&2; exit 69; }

machine=$(mktemp -d -t fresh-machine-XXXXXX)

leave() {
    local mounted
    # The deepest first; what cannot be unmounted is busy, and then the folder must not be removed.
    for mounted in $(awk -v top="$machine/" 'index($2, top) == 1 {print $2}' /proc/mounts | sort -r); do
        # A JVM that ends with its parent may still hold /dev for a moment.
        for _ in $(seq 20); do umount "$mounted" 2>/dev/null && continue 2 || sleep 0.5; done
        umount "$mounted" || { echo "still mounted: $mounted; nothing below $machine was removed" >&2; return; }
    done
    if [ "${FRESH_MACHINE_KEEP:-}" = 1 ]; then
        echo "The system is kept in $machine (nothing is mounted there)" >&2
    else
        rm -rf --one-file-system "$machine"
    fi
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

debian_sources() { # as this machine reaches them: "URI suite components", one a line
    apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 2>/dev/null \
        | awk -v suite="$suite" 'index($2, suite) == 1 && $3 == "main" {print $1, $2, $3}' | sort -u
}

if [ ! -f "$base" ]; then
    mirror=$(debian_sources | awk -v suite="$suite" '$2 == suite {print $1; exit}')
    mkdir -p "$cache"
    debootstrap --variant=minbase --include="$packages" "$suite" "$machine" ${mirror:+"$mirror"} \
        > "$cache/debootstrap.log" 2>&1 || { tail -n 5 "$cache/debootstrap.log" >&2; exit 69; }
    rm -f "$machine"/var/cache/apt/archives/*.deb
    tar -C "$machine" -cf "$base.new" . && mv "$base.new" "$base"
else
    tar -C "$machine" -xpf "$base"
fi

carry() { # a file or folder of this machine, to the same place there
    local path
    for path in "$@"; do
        [ -e "$path" ] || continue
        mkdir -p "$machine$(dirname "$path")"
        cp -RL "$path" "$machine$(dirname "$path")/"
    done
}

carry /etc/resolv.conf /etc/hosts /usr/local/share/ca-certificates /etc/ssl/certs/ca-certificates.crt /etc/pip.conf \
    "$HOME/.config/pip" "$HOME/.pip" "$HOME/.config/go" "$HOME/.m2/settings.xml" "$HOME/.npmrc"
for setting in /etc/apt/apt.conf /etc/apt/apt.conf.d/*; do
    if grep -qisE 'proxy|cainfo|check-(valid|date)' "$setting"; then carry "$setting"; fi
done
if [ -n "$(debian_sources)" ]; then
    debian_sources | sed 's/^/deb /' > "$machine/etc/apt/sources.list"
fi

# Variables that say how registries are reached; one that names a file or folder counts only where that is there too.
environment=(HOME="$HOME" PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8)
while IFS='=' read -r -d '' name value; do
    case $name in
        PIP_* | GOPROXY | GOSUMDB | GONOSUMDB | GOFLAGS | *[Pp][Rr][Oo][Xx][Yy] | SSL_CERT_* | *_CA_BUNDLE | *_CA_CERTS | \
            GIT_SSL_CAINFO | SPARKCRYPT_*) ;;
        *) continue ;;
    esac
    if [[ $value == /* && ! -e $machine$value ]]; then continue; fi
    environment+=("$name=$value")
done < <(env -0)

for folder in proc dev; do
    mkdir -p "$machine/$folder"
    mount --bind "/$folder" "$machine/$folder"
done
if [ -d /dev/shm ]; then mount --bind /dev/shm "$machine/dev/shm"; fi

mkdir -p "$machine$HOME"
git clone -q --no-hardlinks "$checkout" "$machine$HOME/sparkcrypt"
update='if [ -n "$(ls -A /usr/local/share/ca-certificates 2>/dev/null)" ]; then update-ca-certificates >/dev/null 2>&1; fi'
run_there() {
    env -i "${environment[@]}" chroot "$machine" bash -c "cd ~/sparkcrypt && $1" < /dev/null
}

run_there "$update"
for verb in "${verbs[@]}"; do
    echo "fresh machine: make $verb" >&2
    begin=$SECONDS
    run_there "make $verb" || { echo "fresh machine: make $verb failed after $((SECONDS - begin)) s" >&2; exit 1; }
    echo "fresh machine: make $verb took $((SECONDS - begin)) s" >&2
done
echo "fresh machine: ${verbs[*]} did what they say, on a bare Debian $suite with $packages"
