#!/bin/sh
# Makes an authority, and certificates by it and by others for tests of TLS, with their keys, in a folder.
# usage: make_certificates.sh FOLDER
set -eu
cd "$1"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat > "$work/settings" <<END
[ca]
default_ca = own
[own]
database = $work/index
rand_serial = yes
new_certs_dir = $work
default_md = sha256
policy = any
[any]
commonName = supplied
END
# a certificate: its name, who issues it, the last day on which it is valid, and what it may be used for
issue() {
    request=$work/$1.csr
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$1" -keyout "$1.key.pem" -out "$request" 2>/dev/null
    : > "$work/index"
    printf "$4" > "$work/uses"
    if [ "$1" = "$2" ]; then signer="-selfsign"; else signer="-cert $2.pem"; fi
    openssl ca -batch -config "$work/settings" $signer -keyfile "$2.key.pem" -in "$request" -extfile "$work/uses" \
        -notext -startdate 20200101000000Z -enddate "$3" -out "$1.pem" 2>/dev/null
}
signs='basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign\nsubjectKeyIdentifier=hash\n'
serves='subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\nextendedKeyUsage=serverAuth,clientAuth\nsubjectAltName='
issue authority authority 21191231235959Z "$signs"
issue stranger-authority stranger-authority 21191231235959Z "$signs"
issue rank authority 21191231235959Z "${serves}DNS:job.example,IP:127.0.0.1\n"
issue second authority 21191231235959Z "${serves}DNS:job.example,IP:127.0.0.1\n"
issue elsewhere authority 21191231235959Z "${serves}DNS:elsewhere.example,IP:192.0.2.7\n"
issue expired authority 20210101000000Z "${serves}DNS:job.example,IP:127.0.0.1\n"
issue stranger stranger-authority 21191231235959Z "${serves}DNS:job.example,IP:127.0.0.1\n"
rm authority.key.pem stranger-authority.key.pem
