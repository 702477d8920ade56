package queue

import (
	"sync"

	"github.com/nats-io/nats.go"

	"flightline/shared/job"
)

// lowPull is a slot's open pull for a low-priority job.
type lowPull struct {
	sub *nats.Subscription
	got chan *nats.Msg

	mu   sync.Mutex
	over bool
}

func (p *lowPull) start(t *Taker) {
	if p.sub != nil {
		return
	}
	got := make(chan *nats.Msg, 1)
	inbox := t.q.nc.NewInbox()
	sub, err := t.q.nc.Subscribe(inbox, func(m *nats.Msg) {
		if m.Header.Get("Status") != "" && len(m.Data) == 0 {
			return // expired or refused: the next pull asks again
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.over {
			_ = m.Nak()
			return
		}
		select {
		case got <- m:
		default:
			_ = m.Nak()
		}
	})
	if err != nil {
		return // the connection is away; the pull is repeated when it is back
	}
	p.sub, p.got = sub, got
	_ = t.q.sendPull(t.at.endpoint, job.LowPriority, inbox, 1, pullExpires)
}

// close ends the pull by closing its inbox, so that the server drops it, and
// gives back what was already on its way.
func (p *lowPull) close() {
	if p.sub == nil {
		return
	}
	p.mu.Lock()
	p.over = true
	p.mu.Unlock()
	_ = p.sub.Drain()
	select {
	case m := <-p.got:
		_ = m.Nak()
	default:
	}
}
