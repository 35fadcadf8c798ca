#!/bin/sh
# Install Java, Maven and Go where they are missing, by apt-get; fail with the command to run where that can't be done.
set -eu
packages=
have() { command -v "$1" >/dev/null 2>&1 || [ -x "/usr/local/go/bin/$1" ]; }
have javac || packages="$packages default-jdk-headless"
have mvn || packages="$packages maven"
have go || packages="$packages golang-go"
[ -n "$packages" ] || exit 0

as_root=
[ "$(id -u)" = 0 ] || as_root=sudo
echo "The real Java and Go parts need:$packages" >&2
if ! command -v apt-get >/dev/null 2>&1 || { [ -n "$as_root" ] && ! $as_root -n true 2>/dev/null; }; then
    echo "They can't be installed from here. Install them by hand, on Debian: apt-get install$packages" >&2
    exit 1
fi
# shellcheck disable=SC2086  # a list of packages
$as_root env DEBIAN_FRONTEND=noninteractive sh -c "apt-get update -q && apt-get install -q -y --no-install-recommends$packages" >&2
