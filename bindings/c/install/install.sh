#!/bin/sh
# Puts headers, libraries, pkg-config and CMake files below a prefix.
set -eu

usage() {
    cat <<'TEXT'
usage: install.sh [--prefix FOLDER] [--from FOLDER]

  --prefix FOLDER  where to (default: /usr/local)
  --from FOLDER    where cargo left the libraries (default: target/release of the workspace)

examples:
  cargo build --release -p foldwire-capi && sudo bindings/c/install/install.sh
  bindings/c/install/install.sh --prefix "$HOME/.local"
TEXT
}

here=$(cd "$(dirname "$0")" && pwd)
prefix=/usr/local
from=${CARGO_TARGET_DIR:-$here/../../../target}/release
while [ $# -gt 0 ]; do
    case $1 in
        --help | -h) usage; exit 0 ;;
        --prefix) prefix=${2:?--prefix needs a folder}; shift 2 ;;
        --from) from=${2:?--from needs a folder}; shift 2 ;;
        *) usage >&2; exit 2 ;;
    esac
done

header=$here/../include/foldwire.h
number() { sed -n "s/^#define FW_VERSION_$1 //p" "$header"; }
version=$(number MAJOR).$(number MINOR).$(number PATCH)
if [ ! -f "$from/libfoldwire_c.so" ] || [ ! -f "$from/libfoldwire_c.a" ]; then
    echo "no libraries in $from: cargo build --release -p foldwire-capi makes them" >&2
    exit 1
fi

cmake=$prefix/lib/cmake/foldwire
mkdir -p "$prefix/include" "$prefix/lib/pkgconfig" "$cmake"
cp "$header" "$(dirname "$header")/foldwire_mpi.h" "$prefix/include/"
cp "$from/libfoldwire_c.so" "$from/libfoldwire_c.a" "$prefix/lib/"
sed "s/@VERSION@/$version/" "$here/foldwire.pc.in" > "$prefix/lib/pkgconfig/foldwire.pc"
cp "$here/foldwireConfig.cmake" "$cmake/"
sed "s/@VERSION@/$version/" "$here/foldwireConfigVersion.cmake.in" \
    > "$cmake/foldwireConfigVersion.cmake"
echo "foldwire $version is in $prefix"
