package system

import "flightline/e2e/chaos/network"

type cluster struct{ wires *network.Wires }
