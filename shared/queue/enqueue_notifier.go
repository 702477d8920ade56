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

// EnqueueNotifier notifies of the next job that enters a queue, for many endpoints
// and at next to no cost: the server sends the first message after Await, and
// none of those that follow. It is a hint: there is no notification while this
// process is disconnected, nor while too many messages wait to be read, and one may
// come just before the server counts the job. It is safe for concurrent use.
type EnqueueNotifier struct {
	q             *Queue
	notifications chan *nats.Msg

	mu      sync.Mutex
	awaited map[string]awaited
}

// awaited is a subscription that the server ends after one message.
type awaited struct {
	sub *nats.Subscription
	all bool // also jobs of low priority
	// link names the connection by the number of connections before it.
	link uint64
}

// maxUnreadNotifications bounds the messages that wait to be read. Further ones are lost, and Awaits
// does not notice.
const maxUnreadNotifications = 4096

// EnqueueNotifier returns a notifier that awaits no job yet. Close it.
func (q *Queue) EnqueueNotifier() *EnqueueNotifier {
	return &EnqueueNotifier{q: q, notifications: make(chan *nats.Msg, maxUnreadNotifications), awaited: map[string]awaited{}}
}

// Notifications is the channel of notifications; Read reads one. It is never closed.
func (a *EnqueueNotifier) Notifications() <-chan *nats.Msg { return a.notifications }

// Read returns the endpoint that a message of Notifications is about. No further notification of
// that endpoint comes before the next Await.
func (a *EnqueueNotifier) Read(m *nats.Msg) (endpointID string) {
	endpointID = streams.EndpointOf(m.Subject)
	a.mu.Lock()
	defer a.mu.Unlock()
	if is, ok := a.awaited[endpointID]; ok && is.sub == m.Sub {
		_ = is.sub.Unsubscribe() // the server has ended it already
		delete(a.awaited, endpointID)
	}
	return endpointID
}

// Await asks for one notification of the next job of an endpoint: of all jobs, or of those
// without low priority. It may be repeated. It returns bus.ErrUnavailable, and
// endpoint.ErrNotFound for an invalid id.
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
	sub, err := a.q.nc.ChanSubscribe(subject, a.notifications)
	if err == nil {
		err = sub.AutoUnsubscribe(1)
	}
	if err != nil {
		return fmt.Errorf("await jobs of %s: %w: %w", endpointID, bus.ErrUnavailable, err)
	}
	a.awaited[endpointID] = awaited{sub, all, link}
	return nil
}

// Awaits reports whether the notification that Await asked for, of these jobs or of more,
// is still to come, and the connection has been the same since then.
func (a *EnqueueNotifier) Awaits(endpointID string, all bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.awaits(endpointID, all)
}

// awaits is Awaits with mu held.
func (a *EnqueueNotifier) awaits(endpointID string, all bool) bool {
	is, ok := a.awaited[endpointID]
	return ok && (is.all || !all) && a.q.nc.IsConnected() && is.link == a.q.nc.Stats().Reconnects
}

// Forget cancels Await.
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
