#!/bin/sh
# Installs the Debian packages that no wheel can stand in for. What is present already is left alone, so the network is
# not needed then; a package that cannot be installed is reported, and the build says itself what it misses.
missing=""
need() { eval "$2" >/dev/null 2>&1 || missing="$missing $1"; }
need g++ 'command -v g++'
need ccache 'command -v ccache'
need mold 'command -v mold'
need libgtest-dev 'test -e /usr/include/gtest/gtest.h'
need python3.11-dev 'test -e /usr/include/python3.11/Python.h || python3.11 -c "import os, sysconfig; assert os.path.exists(os.path.join(sysconfig.get_path(\"include\"), \"Python.h\"))"'
need python3.11-venv 'test -x .venv/bin/python || python3.11 -c "import ensurepip"'
[ -z "$missing" ] && exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "missing:$missing; install them with the system's package manager" >&2
    exit 0
fi
echo "installing:$missing" >&2
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update >/dev/null 2>&1
for package in $missing; do
    apt-get -qq install -y --no-install-recommends "$package" >/dev/null 2>&1 || echo "$package could not be installed" >&2
done
exit 0
