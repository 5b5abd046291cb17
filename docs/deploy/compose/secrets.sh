#!/bin/sh
# Makes the secrets of compose.yaml once: sh secrets.sh DATABASE_FOLDER NODE_FOLDER
# Existing files are never changed: the database was created with the password, and its secrets are encrypted with the
# master key.
set -eu
umask 077
database=$1
node=$2

# Writes standard input to a file that only the given user can read. A file is complete or absent. No secret is shorter
# than the 64 digits of `random`; a shorter one means that its command failed.
write() {
    cat >"$2.new"
    [ "$(wc -c <"$2.new")" -ge 64 ]
    # In this order: the container may give files away, but not change those of others.
    chmod 0400 "$2.new"
    chown "$1:$1" "$2.new"
    mv "$2.new" "$2"
}

random() {
    od -An -tx1 -N32 /dev/urandom | tr -d ' \n'
}

chmod 0711 "$database" "$node"
# 999 is the user of the PostgreSQL image, 65532 that of the imagate image.
[ -s "$database/password" ] || random | write 999 "$database/password"
[ -s "$node/master_key" ] || random | write 65532 "$node/master_key"
[ -s "$node/database_url" ] ||
    printf 'postgres://imagate:%s@postgres:5432/imagate' "$(cat "$database/password")" | write 65532 "$node/database_url"
