#!/bin/sh
# Installs headers, libraries, pkg-config and CMake files, and the Fortran module below a prefix.
#
# cargo builds the static library. This script links the shared library from it, with a SONAME that
# contains the version. Only fw* symbols are exported, with the same version, so that one process
# can load two versions.
set -eu

usage() {
    cat <<'TEXT'
usage: install.sh [--prefix FOLDER] [--from FOLDER] [--keep-symbols]

  --prefix FOLDER  installation prefix (default: /usr/local)
  --from FOLDER    folder with cargo's library (default: target/release of the workspace)
  --keep-symbols   do not strip the libraries, for debuggers and profilers

The environment variable CC names the C compiler for linking (default: cc).

examples:
  cargo build --release -p foldwire-capi && sudo bindings/c/install/install.sh
  bindings/c/install/install.sh --prefix "$HOME/.local"
TEXT
}

here=$(cd "$(dirname "$0")" && pwd)
prefix=/usr/local
from=${CARGO_TARGET_DIR:-$here/../../../target}/release
strips=yes
while [ $# -gt 0 ]; do
    case $1 in
        --help | -h) usage; exit 0 ;;
        --prefix) prefix=${2:?--prefix needs a folder}; shift 2 ;;
        --from) from=${2:?--from needs a folder}; shift 2 ;;
        --keep-symbols) strips=no; shift ;;
        *) usage >&2; exit 2 ;;
    esac
done

include=$here/../include
number() { sed -n "s/^#define FW_VERSION_$1 //p" "$include/foldwire.h"; }
version=$(number MAJOR).$(number MINOR).$(number PATCH)
# While the major version is 0, a new minor version may break programs.
if [ "$(number MAJOR)" = 0 ]; then abi=0.$(number MINOR); else abi=$(number MAJOR); fi
archive=$from/libfoldwire_c.a
if [ ! -f "$archive" ]; then
    echo "no libfoldwire_c.a in $from; run: cargo build --release -p foldwire-capi" >&2
    exit 1
fi

lib=$prefix/lib
cmake=$lib/cmake/foldwire
mkdir -p "$prefix/include" "$lib/pkgconfig" "$lib/foldwire" "$cmake"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cp "$archive" "$work/libfoldwire_c.a"
printf 'FOLDWIRE_%s { global: fw*; local: *; };\n' "$abi" > "$work/symbols"
"${CC:-cc}" -shared -o "$work/libfoldwire_c.so" -Wl,-soname,"libfoldwire_c.so.$abi" \
    -Wl,--version-script="$work/symbols" -Wl,--gc-sections \
    -Wl,--whole-archive "$work/libfoldwire_c.a" -Wl,--no-whole-archive \
    -lgcc_s -lutil -lrt -lpthread -lm -ldl -lc
if [ "$strips" = yes ]; then
    if command -v strip > /dev/null; then
        strip --strip-unneeded "$work/libfoldwire_c.so"
        strip --strip-debug "$work/libfoldwire_c.a"
    else
        echo "strip is not installed (Debian: binutils); the libraries keep their symbols" >&2
    fi
fi

# Renames over the old file, because running programs may have it loaded.
put() {
    cp "$1" "$2.new"
    chmod "$3" "$2.new"
    mv -f "$2.new" "$2"
}
put "$work/libfoldwire_c.so" "$lib/libfoldwire_c.so.$version" 755
put "$work/libfoldwire_c.a" "$lib/libfoldwire_c.a" 644
[ "$abi" = "$version" ] || ln -sf "libfoldwire_c.so.$version" "$lib/libfoldwire_c.so.$abi"
ln -sf "libfoldwire_c.so.$abi" "$lib/libfoldwire_c.so"
# A folder without the shared library, for `pkg-config --static`.
ln -sf ../libfoldwire_c.a "$lib/foldwire/libfoldwire_c.a"
for name in foldwire.h foldwire_mpi.h foldwire.f90 foldwire_mpi.f90; do
    put "$include/$name" "$prefix/include/$name" 644
done
fill() { sed -e "s/@VERSION@/$version/" -e "s/@ABI@/$abi/" "$here/$1" > "$2"; }
fill foldwire.pc.in "$lib/pkgconfig/foldwire.pc"
fill foldwire-shared.pc.in "$lib/pkgconfig/foldwire-shared.pc"
fill foldwireConfig.cmake.in "$cmake/foldwireConfig.cmake"
fill foldwireConfigVersion.cmake.in "$cmake/foldwireConfigVersion.cmake"
echo "installed foldwire $version in $prefix"
