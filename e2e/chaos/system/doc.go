// Package system tests Flightline as a user runs it: the built binary with
// its default settings, as `flightline dev` with workers beside it, or as three
// NATS servers with `flightline serve all` and workers.
//
// Each scenario does one kind of fault to such an installation and has the
// result audited. Two parties write down what happened, and Flightline is
// neither:
//
//   - the callers, who submit each job under an Idempotency-Key and follow it
//     to its end over HTTP (callers.go);
//   - the handlers, which append a line to a file when they begin and when they
//     have finished (package ledger, command handler).
//
// The audit (audit.go) compares the two with the faults: each accepted job is
// COMPLETED, by a run that the ledger has; a job has one id; a second run
// begins only after the worker of the first was killed, silent for a lease, or
// asked to stop; nothing runs after the job's end; and no job waits longer than
// its scenario allows.
//
// The scenarios are in the table of scenario.go.
package system
