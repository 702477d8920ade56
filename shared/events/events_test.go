package events

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"flightline/shared/job"
	"flightline/shared/testenv"
	"flightline/streams"
)

func TestMain(m *testing.M) {
	testenv.SetParallel()
	goleak.VerifyTestMain(m)
}

// patience bounds every wait for a fact.
const patience = 2 * time.Minute

func newBus(t *testing.T) *testenv.Server {
	t.Helper()
	b := testenv.NewServer(t)
	if err := streams.Apply(t.Context(), b.JS, streams.Config{}); err != nil {
		t.Fatal(err)
	}
	return b
}

// open is one more process's log.
func open(t *testing.T, b *testenv.Server) *Log {
	t.Helper()
	l, err := New(b.Connect(t), b.JS, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// running runs f until the test ends.
func running(t *testing.T, f func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return stop
}

func at(ms int64) time.Time { return time.UnixMilli(ms) }

// life is what happens to a job that fails in its second run.
func life(endpoint, id string) []Event {
	e := Event{
		Endpoint: endpoint, Job: job.ID(id), Attempt: 1, Mode: job.Async, Class: job.Normal,
		Submitted: at(1000), Queued: at(1000), Expires: at(90_000),
	}
	queued, first, second, end := e, e, e, e
	queued.Kind, queued.At, queued.Status = Queued, at(1000), job.InQueue
	first.Kind, first.Run, first.At, first.Started, first.Status = Started, 1, at(2000), at(2000), job.InProgress
	second.Kind, second.Run, second.At, second.Started, second.Status = Started, 2, at(3000), at(3000), job.InProgress
	second.Worker, second.Retries, second.Lost = "w", 1, 1
	end.Kind, end.Run, end.At, end.Status, end.Worker, end.Retries, end.Lost = Failed, 2, at(4000), job.Failed, "w", 1, 1
	end.Started, end.Finished, end.RetainUntil, end.Error = at(3000), at(4000), at(9000), "no"
	end.Cause = "no"
	return []Event{queued, first, second, end}
}

// all reads the whole log.
func all(t *testing.T, l *Log) []Event {
	t.Helper()
	var list []Event
	for after := uint64(0); ; after = list[len(list)-1].Seq {
		page, _, _, err := l.page(t.Context(), after)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			return list
		}
		list = append(list, page...)
	}
}

func TestEventsComeBackAsTheyWere(t *testing.T) {
	l := open(t, newBus(t))
	want := life("ep", "a")
	if err := l.Append(t.Context(), want...); err != nil {
		t.Fatal(err)
	}
	got := all(t, l)
	for i := range got {
		if got[i].Seq != placed(1, i, len(want)) || time.Since(got[i].Written) > patience {
			t.Errorf("event %d: got sequence %d, written %s", i, got[i].Seq, got[i].Written)
		}
		got[i].Seq, got[i].Written = 0, time.Time{}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
}

func TestTheWireFormOfAnEntry(t *testing.T) {
	t.Parallel()
	list := append(life("ep", "a"), life("ep", "b")[:1]...)
	list[4].Attempt, list[4].Mode, list[4].Class, list[4].Queued = 2, job.Sync, job.LowPriority, at(1500)
	got, err := entriesOf(list, 1, 7)
	if err != nil || len(got) != 1 {
		t.Fatalf("got %d messages, %v", len(got), err)
	}
	want := `events.ep.queued.started.-.failed.-.- {"partition":1,"after":7,"expires":89000,"retained":5000,"attempts":[` +
		`{"job":"a","submitted":1000,"events":[{"kind":"queued"},{"kind":"started","at":1000,"run":1},` +
		`{"kind":"started","at":2000,"run":2,"worker":"w","retries":1,"lost":1},{"kind":"failed","at":3000,"error":"no"}]},` +
		`{"job":"b","attempt":2,"mode":"sync","class":"l","submitted":1000,"queued":500,"events":[{"kind":"queued"}]}]}`
	if text := got[0].Subject + " " + string(got[0].Data); text != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
}

// An entry says once what most of its attempts have alike; what differs comes back too.
func TestWhatIsUsualInAnEntry(t *testing.T) {
	t.Parallel()
	end := func(id string, expires, retained time.Duration) Event {
		e := life("ep", id)[3]
		e.Run, e.Worker, e.Retries, e.Lost, e.Started = 0, "", 0, 0, time.Time{}
		e.Expires, e.RetainUntil = e.Submitted.Add(expires), time.Time{}
		if retained >= 0 {
			e.RetainUntil = e.At.Add(retained)
		}
		return e
	}
	const none = -1
	tests := map[string][]Event{
		"nothing differs":        {end("a", time.Hour, time.Minute), end("b", time.Hour, time.Minute)},
		"both differ":            {end("a", time.Hour, time.Minute), end("b", time.Minute, time.Hour)},
		"no result at the end":   {end("a", time.Hour, time.Minute), end("b", time.Hour, none)},
		"no result first":        {end("a", time.Hour, none), end("b", time.Hour, time.Minute)},
		"gone at once":           {end("a", time.Hour, 0)},
		"gone at once, then not": {end("a", time.Hour, 0), end("b", time.Hour, time.Minute)},
		"no end":                 {life("ep", "a")[0], life("ep", "b")[1]},
		"expires at once":        {end("a", 0, time.Minute), end("b", time.Hour, time.Minute)},
	}
	for name, want := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			messages, err := entriesOf(want, 1, 7)
			if err != nil || len(messages) != 1 {
				t.Fatalf("got %d messages, %v", len(messages), err)
			}
			got, err := parseEntry(messages[0].Subject, messages[0].Data)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got.Events); diff != "" {
				t.Errorf("%s\nwant -, got +:\n%s", messages[0].Data, diff)
			}
		})
	}
}

func TestAnEntrySaysWhenAJobWasSubmittedUnlessItsIDDoes(t *testing.T) {
	t.Parallel()
	const made1000 = "00000000-03e8-7000-8000-000000000000"
	for name, tt := range map[string]struct {
		id        string
		submitted time.Time
		says      bool
	}{
		"an id without a time":       {"a", at(1000), true},
		"the time of the id":         {made1000, at(1000), false},
		"that of a sync job":         {job.SyncPrefix + made1000, at(1000), false},
		"another time":               {made1000, at(1001), true},
		"none":                       {made1000, time.Time{}, true},
		"none, an id without a time": {"a", time.Time{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := life("ep", tt.id)
			for i := range want {
				want[i].Submitted = tt.submitted
			}
			messages, err := entriesOf(want, 1, 7)
			if err != nil {
				t.Fatal(err)
			}
			body := messages[0].Data
			if got := strings.Contains(string(body), `"submitted"`); got != tt.says {
				t.Errorf("%s: says it %t, want %t", body, got, tt.says)
			}
			got, err := parseEntry(messages[0].Subject, body)
			if diff := cmp.Diff(want, got.Events); err != nil || diff != "" {
				t.Errorf("%s: %v\nwant -, got +:\n%s", body, err, diff)
			}
		})
	}
}

// An entry whose attempts and ends each have their times, as the version before wrote it.
func TestAnEntryOfTheVersionBefore(t *testing.T) {
	t.Parallel()
	body := `{"partition":1,"after":7,"attempts":[{"job":"a","submitted":1000,"expires":89000,"events":[{"kind":"queued"},` +
		`{"kind":"started","at":1000,"run":1},{"kind":"started","at":2000,"run":2,"worker":"w","retries":1,"lost":1},` +
		`{"kind":"failed","at":3000,"retained":5000,"error":"no"}]}]}`
	got, err := parseEntry("events.ep.queued.started.-.failed.-.-", []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(life("ep", "a"), got.Events); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
}

// What an earlier version wrote is read, between entries too.
func TestAnEventOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	l := open(t, b)
	want := life("ep", "a")
	for i, body := range []string{
		`{"at":1000,"mode":"async","class":"n","status":"IN_QUEUE","submitted":1000,"queued":1000,"expires":90000}`,
		`{"at":2000,"mode":"async","class":"n","status":"IN_PROGRESS","submitted":1000,"queued":1000,"started":2000,"expires":90000}`,
		`{"at":3000,"mode":"async","class":"n","status":"IN_PROGRESS","worker":"w","retries":1,"lost":1,"submitted":1000,"queued":1000,"started":3000,"expires":90000}`,
		`{"at":4000,"mode":"async","class":"n","status":"FAILED","worker":"w","retries":1,"lost":1,"submitted":1000,"queued":1000,"started":3000,"finished":4000,"expires":90000,"retainUntil":9000,"error":"no"}`,
	} {
		if _, err := b.JS.Publish(t.Context(), streams.EventSubject("ep", string(want[i].Kind), "a", 1, want[i].Run), []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	mustAppend(t, l, life("ep", "b")...)
	want = append(want, life("ep", "b")...)
	got := all(t, l)
	for i := range got {
		got[i].Seq, got[i].Written = 0, time.Time{}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
	page, next, err := l.Before(t.Context(), "ep", Past{Kinds: []Kind{Failed}, Most: 5})
	if err != nil || len(page) != 2 || next != 0 || page[0].Job != "b" || page[1].Job != "a" {
		t.Errorf("got %v, %d, %v, want both failures", ids(page), next, err)
	}
}

func TestCursors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]uint64{"0": endOf(0), "41": endOf(41), "41.4090": placed(41, 0, 6), "41.0": placed(41, 0, maxInEntry)} {
		got, err := ParseCursor(text)
		if err != nil || got != want || Cursor(got) != text {
			t.Errorf("%s: got %d, %v, as text %s, want %d", text, got, err, Cursor(got), want)
		}
	}
	for _, text := range []string{"", "x", "-1", "1.", "1.4096", "1.2.3", "4503599627370496", "1e3"} {
		if got, err := ParseCursor(text); err == nil {
			t.Errorf("%q: got %d, want an error", text, got)
		}
	}
}

// The subject of an entry names kinds by the list of package streams, which leaves out
// those that are not in it.
func TestTheSubjectsOfEntriesNameEveryKind(t *testing.T) {
	var kinds []string
	for _, k := range Kinds() {
		kinds = append(kinds, string(k))
	}
	if diff := cmp.Diff(streams.EventKinds(), kinds); diff != "" {
		t.Error(diff)
	}
}

func TestLast(t *testing.T) {
	t.Parallel()
	l := open(t, newBus(t))
	mustAppend(t, l, append(life("ep", "a")[:3:3], life("ep", "b")...)...)
	if got, _, err := l.Last(t.Context(), "ep", "a", time.Time{}, 0); err != nil || got.Kind != Started || got.Run != 2 || got.Worker != "w" {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, _, err := l.Last(t.Context(), "ep", "b", time.Now().Add(-time.Hour), 0); err != nil || got.Kind != Failed || got.Written.IsZero() {
		t.Errorf("got %+v, %v", got, err)
	}
	for id, since := range map[job.ID]time.Time{"c": {}, "b": time.Now().Add(time.Hour)} {
		if _, _, err := l.Last(t.Context(), "ep", id, since, 0); !errors.Is(err, ErrNotFound) {
			t.Errorf("got %v, want ErrNotFound", err)
		}
	}
}

// A search goes on where the one before ended, and starts over if the log was lost since.
func TestLastSearchesOn(t *testing.T) {
	t.Parallel()
	l := open(t, newBus(t))
	mustAppend(t, l, life("ep", "a")...)
	_, upTo, err := l.Last(t.Context(), "ep", "b", time.Time{}, 0)
	if !errors.Is(err, ErrNotFound) || upTo == 0 {
		t.Fatalf("got %d, %v, want where the search ended", upTo, err)
	}
	if _, again, err := l.Last(t.Context(), "ep", "b", time.Time{}, upTo); !errors.Is(err, ErrNotFound) || again != upTo {
		t.Errorf("nothing is new: got %d, %v, want %d", again, err, upTo)
	}
	mustAppend(t, l, life("ep", "b")...)
	for name, searched := range map[string]uint64{"behind the first search": upTo, "a log that was longer": upTo + 1000} {
		if got, _, err := l.Last(t.Context(), "ep", "b", time.Time{}, searched); err != nil || got.Kind != Failed {
			t.Errorf("%s: got %+v, %v, want its end", name, got, err)
		}
	}
	if _, _, err := l.Last(t.Context(), "ep", "a", time.Time{}, upTo); !errors.Is(err, ErrNotFound) {
		t.Errorf("what was searched before: got %v, want ErrNotFound", err)
	}
}

func TestFollowGoesOnAfterAnOutage(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	l := open(t, b)
	if err := l.Append(t.Context(), life("ep", "a")...); err != nil {
		t.Fatal(err)
	}
	got := make(chan Event, 16)
	reader := open(t, b)
	running(t, func(ctx context.Context) error {
		return reader.Follow(ctx, placed(1, 0, 4), func(e Event) error { got <- e; return nil })
	})
	for range 3 {
		<-got
	}
	b.Stop()
	b.Start()
	mustAppend(t, l, life("ep", "b")...)
	for i := range 4 {
		if e, want := <-got, placed(2, i, 4); e.Seq != want || e.Job != "b" {
			t.Errorf("got %d of %s, want %d", e.Seq, e.Job, want)
		}
	}
	enough := errors.New("enough")
	if err := reader.Follow(t.Context(), 0, func(Event) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("got %v, want what each returned", err)
	}
}

func TestKindOf(t *testing.T) {
	t.Parallel()
	for _, s := range job.Statuses() {
		if got := KindOf(s); s.Terminal() != (got != "") {
			t.Errorf("%s: got %q", s, got)
		}
	}
	if len(Kinds()) != 6 {
		t.Errorf("got %v", Kinds())
	}
}
