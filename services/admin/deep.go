package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/api"
	"flightline/shared/bus"
	"flightline/shared/deliveries"
	"flightline/shared/events"
	"flightline/shared/queue"
	"flightline/streams"
)

// progressInterval is the pause between two log lines about the progress.
const progressInterval = 2 * time.Second

// deepCheck is one run of doctor --deep: it reads all that is stored.
type deepCheck struct {
	*checker
	queue      *queue.Queue
	deliveries *deliveries.Store

	messages, bytes uint64
	reported        time.Time
}

// defectGroup names what the defects of one line of the report have in common.
type defectGroup struct {
	stream, endpoint string
	kind             queue.DefectKind
}

// defects are those of a group.
type defects struct {
	n     int
	first queue.Defect
}

// deep reads every message of every stream of Flightline and adds a finding for each
// kind of damage. It returns ctx.Err().
func (x *checker) deep(ctx context.Context, there map[string]*jetstream.StreamInfo) error {
	q, err := queue.New(ctx, x.nc, queue.Config{})
	var webhooks *deliveries.Store
	if err == nil {
		webhooks, err = deliveries.New(q, nil)
	}
	if err != nil {
		x.add("deep", Fail, err.Error(), "nothing was read: run the doctor again")
		return ctx.Err()
	}
	r := &deepCheck{checker: x, queue: q, deliveries: webhooks, reported: time.Now()}
	names := streams.BackupOrder(slices.Collect(maps.Keys(there)))
	before := len(x.report.Findings)
	for _, name := range names {
		if err := r.checkStream(ctx, name); err != nil {
			return err
		}
	}
	state, text := OK, "all can be read and decoded"
	if len(x.report.Findings) > before {
		state, text = Warn, "see the lines above"
	}
	x.add("deep", state, fmt.Sprintf("%d messages (%s) of %d streams and buckets were read: %s", r.messages, api.Size(r.bytes), len(names), text), "")
	return nil
}

// checkStream reads one stream and reports what is wrong with it. It returns ctx.Err().
func (r *deepCheck) checkStream(ctx context.Context, name string) error {
	found := map[defectGroup]*defects{}
	w := &walk{nc: r.nc, js: r.js, stream: name}
	w.each = func(m *nats.Msg) error {
		r.progress(ctx, w)
		d, err := r.inspect(ctx, name, m)
		if err != nil || d == nil {
			return err
		}
		g := defectGroup{name, d.Endpoint, d.Kind}
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
		err = r.reportDamage(ctx, w)
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, jetstream.ErrStreamNotFound): // deleted with its endpoint
	case err != nil:
		r.add("deep "+name, Warn, "not all of it was read: "+err.Error(), "run it again")
	}
	r.reported = time.Time{} // each stream that takes long is named
	for _, g := range slices.SortedFunc(maps.Keys(found), func(a, b defectGroup) int {
		return cmp.Or(cmp.Compare(a.endpoint, b.endpoint), cmp.Compare(a.kind, b.kind))
	}) {
		r.reportDefects(g, found[g])
	}
	return nil
}

// inspect returns the defect of one message, nil for none.
func (r *deepCheck) inspect(ctx context.Context, name string, m *nats.Msg) (*queue.Defect, error) {
	part, _ := streams.PartOf(name)
	switch {
	case name == streams.Events:
		return malformed(events.Check(m)), nil
	case part == streams.PartSettings, part == streams.PartPositions, part == streams.PartCounts:
		if len(m.Data) > 0 && !json.Valid(m.Data) { // a delete marker is empty
			return malformed(fmt.Errorf("%s is not JSON", bus.SubjectOf(m))), nil
		}
	case part == streams.PartJobs, part == streams.PartRecords:
		return r.queue.Inspect(ctx, name, m)
	default:
		return r.deliveries.Inspect(ctx, name, m)
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

func (r *deepCheck) progress(ctx context.Context, w *walk) {
	if time.Since(r.reported) < progressInterval {
		return
	}
	if !r.reported.IsZero() {
		r.cfg.Log.InfoContext(ctx, "reading", "stream", w.stream, "messages", w.read, "of", w.before.Msgs, "all", r.messages+w.read)
	}
	r.reported = time.Now()
}

// reportDamage adds findings for messages that could not be read, and for those
// that the server itself counts as lost.
func (r *deepCheck) reportDamage(ctx context.Context, w *walk) error {
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
	return fmt.Sprintf("NATS found its files damaged and cut off %d messages (%s)", len(l.lost.Msgs), api.Size(l.lost.Bytes))
}

const (
	// beforeKill is what to do about files that a server cuts off once it reads
	// them again, afterCut what is to be done then.
	beforeKill = "when it is next killed, NATS cuts the file off there, and loses what was written to it later: make a backup now, then restore it to an empty NATS; dev mends its files at its next start"
	afterCut   = "they are gone, and what is written from now on can be read; this line ends with the next restart of NATS"
)

// reportDefects adds the finding of a group, whose defects are d.
func (r *deepCheck) reportDefects(g defectGroup, d *defects) {
	what := map[queue.DefectKind]string{
		queue.DefectForm:     "cannot be decoded: " + MeaningOfLoss(g.stream),
		queue.DefectPayload:  "lack a large input or output: a job that needs it to run or to be delivered fails, and an output cannot be read",
		queue.DefectMessage:  "have not ended and are not in their queue any more: a running job is not given to another worker if its own dies, a waiting job is not handed out; they are TIMED_OUT at their deadline or expire",
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

const (
	// maxDeleted is how many deleted sequences of a stream are compared with those
	// that could not be read: the server sends all of them in one answer.
	maxDeleted = 200_000
	// maxEmptyPages is how many pages in a row may be empty before the rest of a
	// stream counts as unreadable.
	maxEmptyPages = 3
	// silenceTimeout is how long a stream may be without an answer before the check of it ends.
	silenceTimeout = time.Minute
)

// span is a range of sequences, both included.
type span struct{ from, to uint64 }

// walk reads all messages of a stream that were there when it began.
type walk struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	stream string
	each   func(*nats.Msg) error

	before jetstream.StreamState
	seq    uint64 // the last that was looked at
	read   uint64 // messages
	bytes  uint64
	// unread are the sequences that no page had, most of them deleted; nil if
	// there are more than maxDeleted.
	unread []span
}

// run reads until the last sequence of the beginning. A stream that is deleted
// meanwhile ends it with jetstream.ErrStreamNotFound.
func (w *walk) run(ctx context.Context) error {
	state, err := w.state(ctx)
	if err != nil {
		return err
	}
	w.before, w.seq = state, max(1, state.FirstSeq)-1
	empty := 0
	err = readPages(ctx, w.js, w.stream, silenceTimeout, func(size int) (int, error) {
		if w.seq >= w.before.LastSeq || empty == maxEmptyPages {
			return 0, errEnd
		}
		n, err := w.page(ctx, size)
		if n > 0 {
			empty = 0
		} else if err == nil {
			empty++
		}
		return n, err
	})
	if err == nil {
		w.skip(w.before.LastSeq)
	}
	return err
}

// page reads what comes next, and returns how many messages there were.
func (w *walk) page(ctx context.Context, size int) (int, error) {
	page, err := bus.BatchGetOnce(ctx, w.nc, w.stream, bus.Batch{From: w.seq + 1, Filter: ">", Most: maxPageMessages, MaxBytes: size})
	if err != nil {
		return 0, err
	}
	for _, m := range page {
		seq := bus.Sequence(m)
		w.skip(min(seq-1, w.before.LastSeq))
		if w.seq = seq; seq > w.before.LastSeq {
			return len(page), nil
		}
		w.read++
		w.bytes += uint64(len(m.Data))
		if err := w.each(m); err != nil {
			return 0, err
		}
	}
	return len(page), nil
}

// skip notes that no message came up to a sequence.
func (w *walk) skip(to uint64) {
	if to > w.seq && w.before.NumDeleted <= maxDeleted {
		w.unread = append(w.unread, span{w.seq + 1, to})
	}
	w.seq = max(w.seq, to)
}

// state asks for the state of the stream. With opts it asks twice, since only the second
// question can have them.
func (w *walk) state(ctx context.Context, opts ...jetstream.StreamInfoOpt) (jetstream.StreamState, error) {
	asked, cancel := context.WithTimeout(ctx, stallTimeout)
	defer cancel()
	s, err := w.js.Stream(asked, w.stream)
	if err != nil {
		return jetstream.StreamState{}, err
	}
	info := s.CachedInfo()
	if len(opts) > 0 {
		if info, err = s.Info(asked, opts...); err != nil {
			return jetstream.StreamState{}, err
		}
	}
	return info.State, nil
}

// errUncounted means that deleted messages cannot be distinguished from damaged ones.
var errUncounted = errors.New("it has too many deleted messages, and changed while it was read: it is not known whether one of them is damaged; try again while it is quiet")

// loss is what is wrong with the messages of a stream.
type loss struct {
	// unreadable is how many there are that cannot be read, where the sequences of
	// the first of them, "" if they are not known.
	unreadable uint64
	where      string
	// lost is what the server left out of its files, nil for nothing.
	lost *jetstream.LostStreamData
}

// damage compares what was read with what the server has. A message that was
// deleted is not damaged. It returns errUncounted if that is not known. Of a stream with
// more than maxDeleted it knows only how many cannot be read.
func (w *walk) damage(ctx context.Context) (l loss, err error) {
	now, err := w.state(ctx)
	if err != nil {
		return l, err
	}
	if max(w.before.NumDeleted, now.NumDeleted) > maxDeleted {
		if now.LastSeq != w.before.LastSeq || now.Msgs != w.before.Msgs {
			return l, errUncounted
		}
		l.unreadable = w.before.Msgs - min(w.read, w.before.Msgs)
		return l, nil
	}
	// Only an answer with details names what the server lost.
	if now, err = w.state(ctx, jetstream.WithDeletedDetails(true)); err != nil {
		return l, err
	}
	left := undeleted(w.unread, now.FirstSeq, now.LastSeq, now.Deleted)
	return loss{count(left), spans(left), now.Lost}, nil
}

// undeleted are the sequences of all from first to last that are not deleted; deleted
// is in order.
func undeleted(all []span, first, last uint64, deleted []uint64) []span {
	var left []span
	for _, s := range all {
		s.from, s.to = max(s.from, first), min(s.to, last)
		at, _ := slices.BinarySearch(deleted, s.from)
		for ; s.from <= s.to; at++ {
			end := s.to
			if at < len(deleted) && deleted[at] <= s.to {
				end = deleted[at] - 1
			}
			if end >= s.from {
				left = append(left, span{s.from, end})
			}
			if at >= len(deleted) || deleted[at] > s.to {
				break
			}
			s.from = deleted[at] + 1
		}
	}
	return left
}

func count(all []span) (n uint64) {
	for _, s := range all {
		n += s.to - s.from + 1
	}
	return n
}

// spans names the first sequences.
func spans(all []span) string {
	const shown = 5
	var names []string
	for _, s := range all[:min(len(all), shown)] {
		if s.from == s.to {
			names = append(names, fmt.Sprint(s.from))
		} else {
			names = append(names, fmt.Sprintf("%d to %d", s.from, s.to))
		}
	}
	if len(all) > shown {
		names = append(names, "…")
	}
	return strings.Join(names, ", ")
}
