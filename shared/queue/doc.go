// Package queue keeps jobs on JetStream: a job is accepted by one publish,
// every attempt has one record, and every transition is one compare-and-set on
// that record (docs/adr/0002). It is the only writer of job state.
//
// Reading order: submit.go (a job arrives), consumer.go and claim.go (a worker
// gets it), decide.go (what a delivery means, such as a lost worker), lease.go
// (the worker's hold on it), message.go (whether a sequence still names its queue
// message, which goes last), move.go (the one place where a status changes), then
// cancel.go, retry.go, purge.go, ttl.go and due.go, which are further triggers,
// and wait.go, which wakes waiting requests. reader.go reads what is stored, and
// read.go shows of it what has not expired.
//
// Everything between receiving a message and acknowledging it may run twice:
// the record decides, the queue message is removed last. A record goes when its
// retention is over (Changes.Remove, called by the recorder), or by the
// server's ttl.
//
// A holder learns that somebody else wrote its job's record by a nudge, which may be lost, else
// at its next heartbeat. A worker that is reached through a gateway learns which jobs to stop by
// its job-stop poll (services/gateway/stop.go), else by its next ping.
//
// The stored form is in shared/record, streamed output in shared/chunks, and what
// is delivered to webhooks in shared/deliveries (docs/adr/0047).
package queue
