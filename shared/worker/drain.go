package worker

import (
	"cmp"
	"context"
	"time"

	"flightline/shared/pod"
)

// readPod reads the pod's record, where requests to drain and to sleep are, once between
// two heartbeats; an idle worker that can sleep, or does, reads it once in beatApart. That
// NATS does not answer is no error: the request stays there.
func (p *presence) readPod(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	p.beating.Lock()
	defer p.beating.Unlock()
	if p.drainReason() != "" || time.Since(p.looked) < p.readInterval() {
		return
	}
	own, err := p.pods.Get(ctx, p.pod.Endpoint, p.pod.ID)
	if err != nil {
		p.log.DebugContext(ctx, "pod not read", "err", err)
		return
	}
	p.looked = time.Now()
	p.applyDrain(own)
	p.applySleep(own)
}

// applyDrain drains the worker if its pod's record asks for that.
func (p *presence) applyDrain(own pod.Pod) {
	if own.Endpoint != p.endpoint.ID || !own.Drains(p.pod.Started) {
		return
	}
	if p.beginDrain(cmp.Or(own.Drain.Why, "by request")) {
		p.onDrain()
	}
}

// beginDrain returns false if the worker drains already.
func (p *presence) beginDrain(why string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.why != "" {
		return false
	}
	p.why, p.self.Draining = why, true
	close(p.drained)
	p.changed.Send()
	return true
}

// drainReason is why the worker drains, "" if it does not.
func (p *presence) drainReason() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.why
}
