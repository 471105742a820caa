#!/usr/bin/env bash
# Jars from Maven Central, brought once for a machine, into ~/.cache/penstock; to be sourced by who has `say` and `fail`.

# What a pom lists, under a name of its own: prints where the jars are. Several may ask at once: each brings its own,
# and the first one puts them in place.
jars_of() {
    local pom=$1 name=$2 version kept made
    version=$(sed -n 's|^  <version>\(.*\)</version>|\1|p' "$pom")
    kept=${XDG_CACHE_HOME:-$HOME/.cache}/penstock/$name-$version
    if [[ ! -d $kept ]]; then
        command -v mvn >/dev/null || fail "mvn (Maven) is missing; tools/setup.sh --tests installs it"
        mkdir -p "$(dirname "$kept")"
        made=$(mktemp -d "$kept.XXXXXX")
        say "brings $name $version with Maven, once for this machine"
        if ! mvn -q -B -f "$pom" dependency:copy-dependencies -DincludeScope=runtime \
            -DoutputDirectory="$made/jars" >"$made/log" 2>&1; then
            cat "$made/log" >&2
            rm -rf "$made"
            fail "Maven could not bring the jars of $name; its own words stand above"
        fi
        chmod 755 "$made/jars"
        mv -T "$made/jars" "$kept" 2>/dev/null || [[ -d $kept ]] || fail "$kept cannot be written"
        rm -rf "$made"
    fi
    printf '%s\n' "$kept"
}
