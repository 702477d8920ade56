package queue

import (
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/streams"
)

// EnqueueNotifier hears of the next job that enters a queue, for many endpoints
// and at next to no cost: the server sends the first message after Await, and
// none of those that follow. It is a hint, no record: what comes while this
// process is cut off from the server is not told, nor what comes while too many
// messages wait to be read, and a job may be heard of just before it is counted.
// It is safe for concurrent use.
type EnqueueNotifier struct {
	q    *Queue
	told chan *nats.Msg

	mu      sync.Mutex
	awaited map[string]awaited
}

// awaited is a subscription that the server ends after one message.
type awaited struct {
	sub *nats.Subscription
	all bool // those of low priority, too
	// link names the connection by the number of connections before it.
	link uint64
}

// arrivalsHeld bounds the messages that wait to be read; beyond it they are
// lost, and Awaits does not know.
const arrivalsHeld = 4096

// EnqueueNotifier starts nothing. Close it.
func (q *Queue) EnqueueNotifier() *EnqueueNotifier {
	return &EnqueueNotifier{q: q, told: make(chan *nats.Msg, arrivalsHeld), awaited: map[string]awaited{}}
}

// Told is where arrivals come from, for Arrived. It is never closed.
func (a *EnqueueNotifier) Told() <-chan *nats.Msg { return a.told }

// Arrived returns the endpoint that a message of Told is about. The next
// arrival there is not told before it is awaited again.
func (a *EnqueueNotifier) Arrived(m *nats.Msg) (endpointID string) {
	endpointID = streams.EndpointOf(m.Subject)
	a.mu.Lock()
	defer a.mu.Unlock()
	if is, ok := a.awaited[endpointID]; ok && is.sub == m.Sub {
		_ = is.sub.Unsubscribe() // the server has ended it already
		delete(a.awaited, endpointID)
	}
	return endpointID
}

// Await begins to wait for the next job of an endpoint: of all, or of those
// without low priority. That it does already is fine. It returns
// bus.ErrUnavailable, and endpoint.ErrNotFound for an id that cannot be.
func (a *EnqueueNotifier) Await(endpointID string, all bool) error {
	if !endpoint.ValidID(endpointID) {
		return endpoint.ErrNotFound
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.awaits(endpointID, all) {
		return nil
	}
	a.forget(endpointID)
	subject := streams.ClassFilter(endpointID, job.Normal)
	if all {
		subject = streams.AllJobs(endpointID)
	}
	link := a.q.nc.Stats().Reconnects
	sub, err := a.q.nc.ChanSubscribe(subject, a.told)
	if err == nil {
		err = sub.AutoUnsubscribe(1)
	}
	if err != nil {
		return fmt.Errorf("await jobs of %s: %w: %w", endpointID, bus.ErrUnavailable, err)
	}
	a.awaited[endpointID] = awaited{sub, all, link}
	return nil
}

// Awaits reports whether nothing was told of the endpoint since Await was
// called for these jobs or for more, and the connection has been the same for
// all that time.
func (a *EnqueueNotifier) Awaits(endpointID string, all bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.awaits(endpointID, all)
}

// awaits is Awaits for who holds mu.
func (a *EnqueueNotifier) awaits(endpointID string, all bool) bool {
	is, ok := a.awaited[endpointID]
	return ok && (is.all || !all) && a.q.nc.IsConnected() && is.link == a.q.nc.Stats().Reconnects
}

// Forget waits for jobs of the endpoint no longer.
func (a *EnqueueNotifier) Forget(endpointID string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forget(endpointID)
}

// forget is Forget with mu held.
func (a *EnqueueNotifier) forget(endpointID string) {
	if is, ok := a.awaited[endpointID]; ok {
		_ = is.sub.Unsubscribe() // that it has ended already is fine
		delete(a.awaited, endpointID)
	}
}

// Close forgets all endpoints.
func (a *EnqueueNotifier) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id := range a.awaited {
		a.forget(id)
	}
}
