package otlp

import (
	"context"
	"log/slog"
	"sync"
	"time"

	wire "go.opentelemetry.io/proto/otlp/trace/v1"
)

// batching is how spans are sent together. The zero value is of no use.
type batching struct {
	// delay is how long a span waits for others, most how many go together.
	delay time.Duration
	most  int
	// timeout bounds sending one batch, room how many spans may wait; what comes
	// beyond is dropped.
	timeout time.Duration
	room    int
}

// uploader is an otlptrace.Client: it knows proxies, certificates, compression
// and when to try again.
type uploader interface {
	UploadTraces(ctx context.Context, spans []*wire.ResourceSpans) error
	Stop(ctx context.Context) error
}

// batch are the spans that wait to be sent, encoded.
type batch struct {
	cfg      batching
	resource []byte // the fields of a ResourceSpans but its spans
	to       uploader
	log      *slog.Logger

	body []byte        // of the last request, for the next one
	full chan struct{} // has one if there may be as many as go together

	mu      sync.Mutex
	waiting []*parcel // the last one is open, those before it are full
	spare   []*parcel
	n       int
	dropped int
}

// parcel is what is sent together, by scope.
type parcel struct {
	n     int
	parts []part
}

type part struct {
	scope *[]byte
	spans []byte // fields of a ScopeSpans
}

func newBatch(cfg batching, resource []byte, to uploader, log *slog.Logger) *batch {
	return &batch{cfg: cfg, resource: resource, to: to, log: log, full: make(chan struct{}, 1)}
}

// add has a span sent. It copies the message, and drops it if too many wait.
func (b *batch) add(scope *[]byte, message []byte) {
	b.mu.Lock()
	if b.n >= b.cfg.room {
		b.dropped++
		b.mu.Unlock()
		return
	}
	b.n++
	p := b.open()
	p.add(scope, message)
	full := p.n == b.cfg.most
	b.mu.Unlock()
	if full {
		select {
		case b.full <- struct{}{}:
		default: // it will look anyway
		}
	}
}

// open is the parcel that has room.
func (b *batch) open() *parcel {
	if last := len(b.waiting) - 1; last >= 0 && b.waiting[last].n < b.cfg.most {
		return b.waiting[last]
	}
	p := &parcel{}
	if last := len(b.spare) - 1; last >= 0 {
		p, b.spare = b.spare[last], b.spare[:last]
	}
	b.waiting = append(b.waiting, p)
	return p
}

func (p *parcel) add(scope *[]byte, message []byte) {
	p.n++
	for i := range p.parts {
		if of := &p.parts[i]; of.scope == scope {
			of.spans = appendString(of.spans, scopeSpansSpans, message)
			return
		}
	}
	p.parts = append(p.parts, part{scope, appendString([]byte(nil), scopeSpansSpans, message)})
}

// take is the next parcel to be sent, nil if there is none: a full one, or any
// if all are to go. dropped is what was dropped since the last one.
func (b *batch) take(all bool) (p *parcel, dropped int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) == 0 || !all && b.waiting[0].n < b.cfg.most {
		return nil, 0
	}
	p, dropped = b.waiting[0], b.dropped
	b.waiting = append(b.waiting[:0], b.waiting[1:]...)
	b.n -= p.n
	b.dropped = 0
	return p, dropped
}

// empty keeps a parcel for further spans: two are enough, one that is sent and
// one that is filled.
func (b *batch) empty(p *parcel) {
	p.n = 0
	for i := range p.parts {
		p.parts[i].spans = p.parts[i].spans[:0]
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if enough := 2; len(b.spare) < enough {
		b.spare = append(b.spare, p)
	}
}

// run sends until stop is closed.
func (b *batch) run(ctx context.Context, stop <-chan struct{}) {
	timer := time.NewTimer(b.cfg.delay)
	defer timer.Stop()
	for {
		all := false
		select {
		case <-stop:
			return
		case <-timer.C:
			all = true
		case <-b.full:
		}
		b.send(ctx, all)
		timer.Reset(b.cfg.delay)
	}
}

// send sends the full parcels, or all that wait, one after the other. What comes
// meanwhile waits for others again. What cannot be sent is lost.
func (b *batch) send(ctx context.Context, all bool) {
	for ctx.Err() == nil {
		p, dropped := b.take(all)
		if p == nil {
			return
		}
		if dropped > 0 {
			b.log.WarnContext(ctx, "spans dropped, too many waited", "spans", dropped)
		}
		if err := b.upload(ctx, p); err != nil {
			b.log.WarnContext(ctx, "spans not sent", "spans", p.n, "err", err)
		}
		last := p.n < b.cfg.most
		b.empty(p)
		if last {
			return
		}
	}
}

// upload sends a parcel. The message has no fields that the encoder knows: it
// copies what we have encoded.
func (b *batch) upload(ctx context.Context, p *parcel) error {
	ctx, cancel := context.WithTimeout(ctx, b.cfg.timeout)
	defer cancel()
	var process wire.ResourceSpans
	b.body = p.encode(b.body[:0], b.resource)
	process.ProtoReflect().SetUnknown(b.body)
	return b.to.UploadTraces(ctx, []*wire.ResourceSpans{&process})
}

// encode adds the fields of a ResourceSpans to b.
func (p *parcel) encode(b, resource []byte) []byte {
	b = append(b, resource...)
	for _, of := range p.parts {
		if len(of.spans) > 0 {
			b = appendTwo(b, resourceSpansScopeSpans, *of.scope, of.spans)
		}
	}
	return b
}
