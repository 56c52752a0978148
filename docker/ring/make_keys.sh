#!/bin/sh
# A certificate for all agents, trusted by itself, and a token; what is there stays.
set -eu
cd /keys
test -e token && exit 0
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 \
    -subj /CN=agents -addext subjectAltName=DNS:agent1,DNS:agent2,DNS:agent3 \
    -keyout agent.key -out agent.pem
openssl rand -hex 32 > token
chmod 644 agent.pem agent.key token # Agents and workers are other users; the volume is theirs.
