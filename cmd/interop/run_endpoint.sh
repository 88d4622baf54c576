#!/bin/bash
set -e

# Routes through the simulator.
/setup.sh

if [ "$ROLE" = client ]; then
	# The simulator takes a while to start.
	/wait-for-it.sh sim:57832 -s -t 30
	exec interop client $CLIENT_PARAMS
fi
exec interop server $SERVER_PARAMS
