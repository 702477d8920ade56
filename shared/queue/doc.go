// Package queue keeps jobs on JetStream: a job is accepted by one publish,
// every attempt has one record, and every transition is one compare-and-set on
// that record (docs/adr/0002). It is the only writer of job state.
//
// Reading order: submit.go (a job arrives), take.go and claim.go (a worker
// gets it), lease.go (the worker's hold on it), move.go (the one place where a
// status changes), then cancel.go, retry.go, purge.go, ttl.go and due.go, which
// are further triggers, and wait.go, which tells whoever waits.
//
// Everything between receiving a message and acknowledging it bears repeating:
// the record decides, the queue message is removed last.
package queue
