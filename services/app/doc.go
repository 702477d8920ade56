// Package app puts the parts together: `flightline dev` runs all of them and
// an embedded JetStream in one process, `flightline serve` some of them
// against a NATS that runs elsewhere. It has no logic of its own: it knows
// which part needs which other, and what to print at the start.
//
// Reading order: config.go (what can be set), dev.go and serve.go (which parts are
// wanted), node.go (puts them together), restart.go (restarts the embedded server when its
// disk takes writes again). admin.go has backup, restore and doctor.
//
// A flag of dev or serve is a field of a struct in config.go; its tags are the
// name, the variable, the default and the help text. docs/configuration.md is
// generated from them. Flags of client commands are in package cli.
package app
