// Package dev puts the parts together: `flightline dev` runs all of them and
// an embedded JetStream in one process, `flightline serve` some of them
// against a NATS that runs elsewhere. It has no logic of its own: what it
// knows is which part needs which other, and what to say to whoever started
// it.
package dev
