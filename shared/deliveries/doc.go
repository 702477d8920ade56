// Package deliveries has the webhooks that are to be delivered: the tasks, the log
// of attempts to deliver them, and the dead letters, which a redrive returns to
// the tasks.
//
// A task is the end of an attempt of a job, with copies of its payloads: delivery
// may take longer than the retention (docs/adr/0024). The log decides what became
// of a task, which may be redelivered: an attempt is logged by compare-and-set
// before its task is acknowledged.
package deliveries

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
	"flightline/shared/queue"
)

// Store has the tasks, the log and the dead letters of an installation. It is
// safe for concurrent use.
type Store struct {
	q   *queue.Queue
	bus *bus.Client
	js  jetstream.JetStream
	log *slog.Logger

	copies        deadCopies // of TrimUndelivered alone
	leftoverPause time.Duration
}

// New returns the store that is beside q. A nil log discards.
func New(q *queue.Queue, log *slog.Logger) (*Store, error) {
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	js, err := q.Bus().JetStream()
	return &Store{q: q, bus: q.Bus(), js: js, log: log, leftoverPause: leftoverPause}, err
}
