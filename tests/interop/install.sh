#!/bin/sh
# Install Java, Maven and Go where they are missing, by apt-get; fail with the command to run where that can't be done.
# Chromium too, for the screenshots of test_report.py: where it can't be installed a line says so, and they are skipped.
set -eu
packages=
have() { command -v "$1" >/dev/null 2>&1 || [ -x "/usr/local/go/bin/$1" ]; }
have javac || packages="$packages default-jdk-headless"
have mvn || packages="$packages maven"
have go || packages="$packages golang-go"

as_root=
[ "$(id -u)" = 0 ] || as_root="sudo -n"
install() {
    $as_root env DEBIAN_FRONTEND=noninteractive sh -c "apt-get update -q && apt-get install -q -y --no-install-recommends $*" >&2
}
if ! have chromium && ! have chromium-browser && ! have google-chrome; then
    install chromium fonts-dejavu-core || echo "No Chromium can be installed from here: test_report.py is skipped" >&2
fi
[ -n "$packages" ] || exit 0
echo "The real Java and Go parts need:$packages" >&2
if ! command -v apt-get >/dev/null 2>&1 || { [ -n "$as_root" ] && ! $as_root true 2>/dev/null; }; then
    echo "They can't be installed from here. Install them by hand, on Debian: apt-get install$packages" >&2
    exit 1
fi
# shellcheck disable=SC2086  # a list of packages
install $packages
