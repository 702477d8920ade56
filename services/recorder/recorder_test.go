package recorder

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/events"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/testenv"
	"flightline/streams"
)

func TestWhatHappenedIsToldCountedAndForgotten(t *testing.T) {
	t.Parallel()
	s, _ := newEnv(t)
	s.recorder(t, "only", nil)
	s.play(t, 3*len(lives))
	s.audit(t)
}

func TestARecorderThatComesLateTellsTheSame(t *testing.T) {
	t.Parallel()
	s, _ := newEnv(t)
	s.play(t, 3*len(lives))
	s.recorder(t, "late", nil)
	s.audit(t)
}

func TestTwoThatBothBelieveToBeActiveHarmNothing(t *testing.T) {
	t.Parallel()
	s, _ := newEnv(t)
	for range 2 {
		s.recorder(t, "", nil)
	}
	s.play(t, 6*len(lives))
	s.audit(t)
}

// At each step a recorder dies, and the next one goes on from there.
func TestAKillBetweenAnyTwoStepsLosesAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	for _, at := range []Point{AfterAnnounce, AfterEvents, AfterPosition, BeforeRemove} {
		t.Run(string(at), func(t *testing.T) {
			t.Parallel()
			s, _ := newEnv(t)
			s.torn = at == BeforeRemove // beside all else
			for range 4 {
				var dead atomic.Bool
				p := s.recorder(t, "", func(p *process, point Point) {
					if point == at && dead.CompareAndSwap(false, true) {
						p.kill()
					}
				})
				s.play(t, len(lives))
				testenv.EventuallyNone(t, func() string {
					if dead.Load() {
						return ""
					}
					return "it lives"
				})
				p.stop()
			}
			s.recorder(t, "", nil)
			s.audit(t)
		})
	}
}

// The recorder and the server are away for twice the retention, so all that
// happened has long ended for callers.
func TestAnOutageOfTwiceTheRetentionLeavesNoGap(t *testing.T) {
	t.Parallel()
	s, bus := newEnv(t)
	s.torn = true
	s.recorder(t, "first", nil)
	s.play(t, len(lives))
	bus.Stop()
	away := time.NewTimer(2 * s.e.Retention)
	<-away.C
	bus.Start()
	testenv.EventuallyNone(t, func() string {
		if _, err := s.q.Counts.Stats(t.Context(), s.e); err != nil {
			return err.Error()
		}
		return ""
	})
	s.play(t, len(lives))
	s.audit(t)
}

// A server whose machine lost its power may have records again that were removed.
func TestRecordsThatAServerBringsBackAreRemovedAgain(t *testing.T) {
	t.Parallel()
	s, bus := newEnv(t)
	saved := make(chan struct{})
	r := s.recorder(t, "", func(_ *process, at Point) {
		if at == BeforeRemove {
			<-saved
		}
	})
	s.play(t, 1)
	s.recorded(t, r)
	bus.Stop()
	restore := bus.SaveMessages(t, streams.Records(0))
	bus.Start()
	close(saved)
	gone := func() string { return s.left(t) }
	testenv.EventuallyNone(t, gone)
	bus.Stop()
	restore()
	bus.Start()
	testenv.EventuallyNone(t, gone)
}

// A ttl change writes an ended attempt's record again, and what it says of the end is that
// attempt's own.
func TestATTLChangedBeforeAndAfterARetryTellsNothingTwice(t *testing.T) {
	t.Parallel()
	s, _ := newEnv(t)
	r := s.recorder(t, "", nil)
	recorded := func() { t.Helper(); s.recorded(t, r) }
	consumer, err := s.q.Consume(t.Context(), s.e, "w", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer consumer.Close()
	p := player{s, t, consumer}
	id := queue.NewID(job.Async)
	p.must(s.q.Submit(t.Context(), s.e, id, job.Async, job.Request{Input: json.RawMessage(`{}`)}))
	p.must(p.next().Fail(t.Context(), "no"))
	recorded()
	p.must(s.q.SetTTL(t.Context(), s.e, id, s.e.TTL-time.Hour))
	recorded()
	p.must(s.q.Retry(t.Context(), s.e, id, ""))
	p.must(p.next().Complete(t.Context(), nil))
	recorded()
	p.must(s.q.SetTTL(t.Context(), s.e, id, s.e.TTL-2*time.Hour))
	recorded()
	if got := s.told(t)[fmt.Sprintf("%s.2", id)]; len(got) != 3 {
		t.Errorf("attempt 2 has the events %q, want queued, started and completed once", got)
	}
}

// A record that cannot be read, as after damage of its file, does not delay the events of
// other jobs.
func TestADamagedRecordHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	s, _ := newEnv(t)
	end := func(webhook string) job.ID {
		t.Helper()
		id := queue.NewID(job.Async)
		if _, err := s.q.Submit(t.Context(), s.e, id, job.Async, job.Request{Input: json.RawMessage(`{}`), Webhook: webhook}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.q.Cancel(t.Context(), s.e, id); err != nil {
			t.Fatal(err)
		}
		return id
	}
	damaged := end("https://example.test/")
	stream, err := s.JS.Stream(t.Context(), streams.Records(0))
	if err != nil {
		t.Fatal(err)
	}
	m, err := stream.GetLastMsgForSubject(t.Context(), streams.RecordSubject(0, s.e.ID, damaged, 1))
	if err != nil {
		t.Fatal(err)
	}
	m.Header.Del(jetstream.MsgIDHeader)
	m.Header.Del(jetstream.ExpectedLastSubjSeqHeader)
	if _, err := s.JS.PublishMsg(t.Context(), &nats.Msg{Subject: m.Subject, Header: m.Header, Data: append(m.Data, 'x')}); err != nil {
		t.Fatal(err)
	}
	other := end("")
	s.recorder(t, "", nil)
	testenv.Eventually(t, "the log has the end of the other job", func() bool { return len(s.told(t)[fmt.Sprintf("%s.1", other)]) == 2 })
}

func TestARecorderThatWasAwayForTwiceTheRetentionLeavesNoGap(t *testing.T) {
	t.Parallel()
	s, _ := newEnv(t)
	s.torn = true // it is stopped while it records
	first := s.recorder(t, "first", nil)
	s.play(t, len(lives))
	first.stop()
	s.play(t, len(lives))
	away := time.NewTimer(2 * s.e.Retention)
	<-away.C
	s.recorder(t, "second", nil)
	s.audit(t)
}

func TestAStandbyGoesOnWhereTheActiveOneStopped(t *testing.T) {
	t.Parallel()
	s, _ := newEnv(t)
	s.torn = true // the first is stopped while it records
	var busy [2]atomic.Int64
	first := s.recorder(t, "first", func(_ *process, p Point) {
		if p == AfterEvents {
			busy[0].Add(1)
		}
	})
	s.play(t, len(lives))
	testenv.EventuallyNone(t, func() string {
		if busy[0].Load() > 0 {
			return ""
		}
		return "it does not"
	})
	s.recorder(t, "second", func(_ *process, p Point) {
		if p == AfterEvents {
			busy[1].Add(1)
		}
	})
	s.play(t, len(lives))
	if n := busy[1].Load(); n > 0 {
		t.Errorf("the standby recorded %d times", n)
	}
	first.stop()
	s.play(t, len(lives))
	s.audit(t)
	if busy[1].Load() == 0 {
		t.Error("the standby recorded nothing")
	}
}

// An end that is announced again after its delivery would be delivered twice.
func TestAnEndIsAnnouncedOnce(t *testing.T) {
	t.Parallel()
	s, _ := newEnv(t)
	first := s.recorder(t, "", nil)
	s.play(t, 1)
	stream, err := s.JS.Stream(t.Context(), streams.Webhooks)
	if err != nil {
		t.Fatal(err)
	}
	testenv.EventuallyNone(t, func() string {
		info, err := stream.Info(t.Context())
		if err != nil || info.State.Msgs != 1 {
			return "not yet"
		}
		return ""
	})
	testenv.EventuallyNone(t, func() string {
		for _, steps := range s.told(t) {
			if len(steps) == 3 {
				return ""
			}
		}
		return "not yet"
	})
	first.stop()
	if err := stream.Purge(t.Context()); err != nil { // it is delivered
		t.Fatal(err)
	}
	log, err := events.New(s.NC, s.JS, nil)
	if err != nil {
		t.Fatal(err)
	}
	// As if the first had died before its position.
	if err := log.SetCheckpoint(t.Context(), "records_0", events.Checkpoint{}); err != nil {
		t.Fatal(err)
	}
	again := make(chan struct{}, 1)
	s.recorder(t, "", func(_ *process, p Point) {
		if p == AfterAnnounce {
			select {
			case again <- struct{}{}:
			default:
			}
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	select {
	case <-again:
	case <-ctx.Done():
		t.Fatal("the second recorder never came to announce")
	}
	info, err := stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info.State.LastSeq != 1 {
		t.Errorf("got %d messages ever, want 1", info.State.LastSeq)
	}
}

// A webhook that has to be announced again, because a power loss took the event
// of its end back, needs the input.
func TestALargeInputStaysUntilTheEventsOfItsEndAreOnTheDisk(t *testing.T) {
	t.Parallel()
	s, _ := newEnv(t)
	inputs := func() (int, error) {
		subjects, err := s.beside(t, streams.Payloads(0), streams.AnyInput(0, s.e.ID, "*"))
		return len(subjects), err
	}
	var looked, early atomic.Bool
	s.recorder(t, "", func(_ *process, at Point) {
		if at != AfterEvents {
			return
		}
		if n, err := inputs(); err == nil {
			looked.Store(true)
			early.Store(early.Load() || n == 0)
		}
	})
	s.play(t, 1)
	testenv.EventuallyNone(t, func() string {
		switch n, err := inputs(); {
		case err != nil:
			return err.Error()
		case n > 0:
			return "it is there"
		}
		return ""
	})
	if early.Load() || !looked.Load() {
		t.Errorf("early: %t, looked: %t; want it to go after the position, which is written once the events are on the disk", early.Load(), looked.Load())
	}
}

// The log of events is kept below its bound, and what was counted stays counted.
func TestTheLogOfEventsIsBounded(t *testing.T) {
	t.Parallel()
	s, _ := newEnv(t)
	q := s.queue(t, s.NC, queue.Config{})
	log, err := events.New(s.NC, s.JS, nil)
	if err != nil {
		t.Fatal(err)
	}
	state := func() jetstream.StreamState {
		stream, err := s.JS.Stream(t.Context(), streams.Events)
		if err != nil {
			t.Fatal(err)
		}
		return stream.CachedInfo().State
	}
	const bound = 4000
	r, err := New(Config{EventsMaxBytes: bound}, Deps{Queue: q, Events: log})
	if err != nil {
		t.Fatal(err)
	}
	r.saveInterval = time.Second
	testenv.Background(t, r.Run)
	for range 3 { // in many entries
		s.play(t, len(lives))
	}
	testenv.EventuallyNone(t, func() string {
		got, err := log.Totals(t.Context(), s.e.ID)
		if err != nil {
			return err.Error()
		}
		return cmp.Diff(s.totals, got)
	})
	testenv.EventuallyNone(t, func() string {
		if now := state(); now.Msgs == 0 || now.Bytes > bound || now.FirstSeq <= 1 {
			return fmt.Sprintf("%d bytes from entry %d on, want %d at most, and the oldest removed", now.Bytes, now.FirstSeq, bound)
		}
		return ""
	})
	if got, err := log.Totals(t.Context(), s.e.ID); err != nil || got != s.totals {
		t.Errorf("got %+v, %v, want %+v", got, err, s.totals)
	}
}
