#!/bin/sh
# Puts headers, libraries, pkg-config and CMake files, and the Fortran module below a prefix.
#
# cargo makes the static library. The shared one is linked of it here: with a name by which programs
# know its version (SONAME), and fw* its only symbols, which have that version as well. So two
# versions can be in one process.
set -eu

usage() {
    cat <<'TEXT'
usage: install.sh [--prefix FOLDER] [--from FOLDER] [--keep-symbols]

  --prefix FOLDER  where to (default: /usr/local)
  --from FOLDER    where cargo left the library (default: target/release of the workspace)
  --keep-symbols   do not strip the libraries, for debuggers and profilers

CC names the C compiler that links (default: cc).

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
# While the major number is 0, the minor one counts changes that break programs.
if [ "$(number MAJOR)" = 0 ]; then abi=0.$(number MINOR); else abi=$(number MAJOR); fi
archive=$from/libfoldwire_c.a
if [ ! -f "$archive" ]; then
    echo "no libfoldwire_c.a in $from: cargo build --release -p foldwire-capi makes it" >&2
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
        echo "no strip here (Debian: binutils): the libraries keep their symbols" >&2
    fi
fi

# A library that programs run with is replaced, not written over.
put() {
    cp "$1" "$2.new"
    chmod "$3" "$2.new"
    mv -f "$2.new" "$2"
}
put "$work/libfoldwire_c.so" "$lib/libfoldwire_c.so.$version" 755
put "$work/libfoldwire_c.a" "$lib/libfoldwire_c.a" 644
[ "$abi" = "$version" ] || ln -sf "libfoldwire_c.so.$version" "$lib/libfoldwire_c.so.$abi"
ln -sf "libfoldwire_c.so.$abi" "$lib/libfoldwire_c.so"
# A folder without the shared one, where `pkg-config --static` looks first.
ln -sf ../libfoldwire_c.a "$lib/foldwire/libfoldwire_c.a"
for name in foldwire.h foldwire_mpi.h foldwire.f90 foldwire_mpi.f90; do
    put "$include/$name" "$prefix/include/$name" 644
done
fill() { sed -e "s/@VERSION@/$version/" -e "s/@ABI@/$abi/" "$here/$1" > "$2"; }
fill foldwire.pc.in "$lib/pkgconfig/foldwire.pc"
fill foldwire-shared.pc.in "$lib/pkgconfig/foldwire-shared.pc"
fill foldwireConfig.cmake.in "$cmake/foldwireConfig.cmake"
fill foldwireConfigVersion.cmake.in "$cmake/foldwireConfigVersion.cmake"
echo "foldwire $version is in $prefix"
