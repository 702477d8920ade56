package operate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/events"
	"flightline/shared/queue"
	"flightline/streams"
)

// progressInterval is the pause between two lines that say how far it is.
const progressInterval = 2 * time.Second

// reading is one run over all that is stored.
type reading struct {
	*exam
	queue *queue.Queue

	messages, bytes uint64
	told            time.Time
}

// group are the defects that one line is about.
type group struct {
	stream, endpoint string
	kind             queue.DefectKind
}

// defects are those of a group.
type defects struct {
	n     int
	first queue.Defect
}

// deep reads every message of every stream of ours and adds a finding for each
// kind of damage. It returns ctx.Err().
func (x *exam) deep(ctx context.Context, there map[string]*jetstream.StreamInfo) error {
	q, err := queue.New(ctx, x.nc, queue.Config{})
	if err != nil {
		x.add("deep", Fail, err.Error(), "nothing was read: run the doctor again")
		return ctx.Err()
	}
	r := &reading{exam: x, queue: q, told: time.Now()}
	names := streams.BackupOrder(slices.Collect(maps.Keys(there)))
	before := len(x.report.Findings)
	for _, name := range names {
		if err := r.stream(ctx, name); err != nil {
			return err
		}
	}
	state, text := OK, "all can be read and decoded"
	if len(x.report.Findings) > before {
		state, text = Warn, "see the lines above"
	}
	x.add("deep", state, fmt.Sprintf("%d messages (%s) of %d streams and buckets were read: %s", r.messages, bytesOf(r.bytes), len(names), text), "")
	return nil
}

// stream reads one. It returns ctx.Err().
func (r *reading) stream(ctx context.Context, name string) error {
	found := map[group]*defects{}
	w := &walk{nc: r.nc, js: r.js, stream: name}
	w.each = func(m *nats.Msg) error {
		r.progress(ctx, w)
		d, err := r.inspect(ctx, name, m)
		if err != nil || d == nil {
			return err
		}
		g := group{name, d.Endpoint, d.Kind}
		if found[g] == nil {
			found[g] = &defects{first: *d}
		}
		found[g].n++
		return nil
	}
	err := w.run(ctx)
	r.messages += w.read
	r.bytes += w.bytes
	if err == nil {
		err = r.unreadable(ctx, w)
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, jetstream.ErrStreamNotFound): // deleted with its endpoint
	case err != nil:
		r.add("deep "+name, Warn, "not all of it was read: "+err.Error(), "run it again")
	}
	r.told = time.Time{} // each stream that takes long is named
	for _, g := range slices.SortedFunc(maps.Keys(found), func(a, b group) int {
		return cmp.Or(cmp.Compare(a.endpoint, b.endpoint), cmp.Compare(a.kind, b.kind))
	}) {
		r.defective(g, found[g])
	}
	return nil
}

// inspect checks what one message says.
func (r *reading) inspect(ctx context.Context, name string, m *nats.Msg) (*queue.Defect, error) {
	part, _ := streams.PartOf(name)
	switch {
	case name == streams.Events:
		return malformed(events.Check(m)), nil
	case part == streams.PartThings, part == streams.PartPositions, part == streams.PartCounts:
		if len(m.Data) > 0 && !json.Valid(m.Data) { // a delete marker is empty
			return malformed(fmt.Errorf("%s is not JSON", m.Header.Get(jetstream.SubjectHeader))), nil
		}
	default:
		return r.queue.Inspect(ctx, name, m)
	}
	return nil, nil //nolint:nilnil // no defect is no error
}

// malformed is the defect of a message that cannot be decoded, nil if err is.
func malformed(err error) *queue.Defect {
	if err == nil {
		return nil
	}
	return &queue.Defect{Kind: queue.DefectForm, Err: err}
}

func (r *reading) progress(ctx context.Context, w *walk) {
	if time.Since(r.told) < progressInterval {
		return
	}
	if !r.told.IsZero() {
		r.cfg.Log.InfoContext(ctx, "reading", "stream", w.stream, "messages", w.read, "of", w.before.Msgs, "all", r.messages+w.read)
	}
	r.told = time.Now()
}

// unreadable adds findings for messages that could not be read, and for those
// that the server itself counts as lost.
func (r *reading) unreadable(ctx context.Context, w *walk) error {
	l, err := w.damage(ctx)
	if l.unreadable > 0 {
		r.add("deep "+w.stream, Fail, l.text()+": "+MeaningOfLoss(w.stream), beforeKill)
	}
	if l.lost != nil {
		r.add("lost "+w.stream, Fail, l.lostText()+": "+MeaningOfLoss(w.stream), afterCut)
	}
	return err
}

func (l loss) text() string {
	text := fmt.Sprintf("%d messages cannot be read", l.unreadable)
	if l.where != "" {
		text += " (sequence " + l.where + ")"
	}
	return text
}

func (l loss) lostText() string {
	return fmt.Sprintf("NATS found its files damaged and cut off %d messages (%s)", len(l.lost.Msgs), bytesOf(l.lost.Bytes))
}

const (
	// beforeKill is what to do about files that a server cuts off once it reads
	// them again, afterCut what is to be done then.
	beforeKill = "when it is next killed, NATS cuts the file off there, and loses what was written to it later: make a backup now, then restore it to an empty NATS; dev mends its files at its next start"
	afterCut   = "they are gone, and what is written from now on can be read; this line ends with the next restart of NATS"
)

// defective adds the finding of a group.
func (r *reading) defective(g group, d *defects) {
	what := map[queue.DefectKind]string{
		queue.DefectForm:     "cannot be decoded: " + MeaningOfLoss(g.stream),
		queue.DefectPayload:  "lack a large input or output: a job that needs it to run or to be told fails, and an output cannot be read",
		queue.DefectMessage:  "have not ended and are not in their queue any more: one that runs is not given to another worker if its own dies, one that waits is not handed out; they are TIMED_OUT at their deadline or expire",
		queue.DefectLeftover: "have a record that came back when NATS was killed, and no place in their queue: it goes when someone asks for the job",
	}[g.kind]
	state, hint := Fail, "restore a backup if you need them; nothing else is affected"
	if g.kind == queue.DefectLeftover {
		state, hint = Warn, "nothing: they ended before, or were cancelled"
	}
	who := fmt.Sprintf("%d messages", d.n)
	if g.endpoint != "" {
		who = fmt.Sprintf("%d jobs of endpoint %s", d.n, g.endpoint)
	}
	first := ""
	if d.first.Job != "" {
		first = fmt.Sprintf(" (the first is %s)", d.first.Job)
	}
	r.add("deep "+g.stream, state, fmt.Sprintf("%s%s %s; %v", who, first, what, d.first.Err), hint)
}
