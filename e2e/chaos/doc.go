// Chaos kills every process of Flightline at bad moments while jobs are
// submitted, cancelled, retried, purged and given other ttls, and then proves
// from an independent ledger that nothing was lost and nothing happened twice.
//
//	go run ./e2e/chaos                  plants, 2000 jobs on one node, 1000 on three
//	go run ./e2e/chaos -short           the same with 600 and 300 jobs, as CI does
//	go run ./e2e/chaos -nodes 3         only three nodes
//	go run ./e2e/chaos -plants          only the planted bugs
//	go run ./e2e/chaos -scenario cluster -rate 200 -for 5m
//	                                    three nodes killed and cut off under load
//	go run ./e2e/chaos -scenario system  the built binary, as a user runs it
//	go run ./e2e/chaos -scenario dev-freeze,scaler-kill -binary PATH
//	                                    some of that, of another build
//
// NATS nodes, api instances and workers are processes of this same program
// (roles.go), so that SIGKILL is a real one. A worker is asked to kill itself
// at one of the crash points of package queue, is killed at random, or is
// asked to stop; an api instance is killed at random or at a crash point; a
// NATS node is killed, kept away for longer than two leases, or suspended.
//
// The cluster scenario (cluster.go) has real configurations of nats-server,
// joined by relays that can be cut (package network): each node is killed, cut off from
// the others and from half of the clients, and cut from one other. Callers come
// at a steady rate and try again under an idempotency key (cluster_load.go), which
// has to stand for one job; what they saw is a table.
//
// Three parties write down what they saw, independently of the queue:
//
//   - the driver, what callers were answered and when (driver.go, client.go);
//   - each worker, when a handler began, and which outcome it was answered,
//     into a file that survives its death (worker.go, ledger.go);
//   - the observer, every write of every record, by sequence (observer.go).
//
// The audit holds these against the promises (audit.go and its neighbours):
// accepted is accounted for; one outcome per attempt; no outcome after the
// ttl; no run without a cause, where an outage of NATS is no cause; a purge's
// count is what it cancelled; an output is what its run produced, whole; each
// record write expected the one before it; and the history of each job, as
// callers, workers and observer saw it, is one of the state machine (model.go,
// checked by porcupine). Two recorders, which both believe to be active and die
// between any two steps, have recorded every event of every attempt, once and in
// order, and counted each (recorder.go).
//
// Package system has scenarios of another kind: what a user starts, default
// settings and all roles in one process included, with a ledger that only
// handlers and callers write.
//
// A harness that finds nothing proves nothing: first it must find five bugs
// that package queue carries behind a build tag, each by a scenario that finds
// nothing without the bug (mutations.go, scenarios.go).
package main
